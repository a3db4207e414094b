"""The common options of replays."""

from __future__ import annotations

import click
import pytest

from ipcbus_tools.replay.replay_options import MAX_SPEED, speed_of
from tests.kit.cases import each_of

CONTEXT = click.Context(click.Command("replay"))
OPTION = click.Option(["--speed"])


@each_of(("text", "factor"), [("real", 1.0), ("MAX", MAX_SPEED), ("10x", 10.0), ("0.5", 0.5), ("2X", 2.0)])
def test_a_speed_is_a_word_or_a_factor(text: str, factor: float) -> None:
    assert speed_of(CONTEXT, OPTION, text) == factor


@each_of("text", ["", "fast", "0x", "-1", "inf", "nan", "x"])
def test_other_speeds_are_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match="give real, max, or a factor such as 10x"):
        speed_of(CONTEXT, OPTION, text)
