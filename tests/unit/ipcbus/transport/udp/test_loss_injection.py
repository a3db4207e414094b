from __future__ import annotations

import random
from typing import Literal

import pytest

from ipcbus.errors import ConfigError
from ipcbus.transport.udp.loss_injection import from_environment
from tests.kit.cases import each_of


@pytest.mark.parametrize(
    ("name", "transport", "end"),
    [
        ("LBTRU_LOSS_RATE", "lbtru", "receiver"),
        ("LBTRU_SRC_LOSS_RATE", "lbtru", "source"),
        ("LBTRM_LOSS_RATE", "lbtrm", "receiver"),
        ("LBTRM_SRC_LOSS_RATE", "lbtrm", "source"),
    ],
)
def test_each_end_has_its_variable(
    name: str,
    transport: Literal["lbtru", "lbtrm"],
    end: Literal["source", "receiver"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(name, "30")
    loss = from_environment(transport, end, random.Random(1))
    assert loss is not None
    struck = [loss.drops_next() for _ in range(1000)]
    assert loss.lost == sum(struck)
    assert 200 < loss.lost < 400
    again = from_environment(transport, end, random.Random(1))
    assert again is not None
    assert [again.drops_next() for _ in range(1000)] == struck
    monkeypatch.delenv(name)
    assert from_environment(transport, end, random.Random(1)) is None


@each_of("text", ["", " ", "0", "0.0"])
def test_none(text: str) -> None:
    assert from_environment("lbtru", "source", random.Random(1), {"LBTRU_SRC_LOSS_RATE": text}) is None


def test_all() -> None:
    loss = from_environment("lbtrm", "receiver", random.Random(1), {"LBTRM_LOSS_RATE": "100"})
    assert loss is not None
    assert all(loss.drops_next() for _ in range(100))


@each_of("text", ["-1", "100.1", "ten", "10%", "nan", "inf"])
def test_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"environment variable LBTRM_LOSS_RATE = '{text}' .*from 0 to 100"):
        from_environment("lbtrm", "receiver", random.Random(1), {"LBTRM_LOSS_RATE": text})
