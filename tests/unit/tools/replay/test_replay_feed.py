from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.config import Config
from ipcbus_tools.replay.feed_file import Survey
from ipcbus_tools.replay.replay_feed import ReplayPace, _open_sources
from ipcbus_tools.replay.replay_options import MAX_SPEED
from ipcbus_tools.signals import SignalHandler

if TYPE_CHECKING:
    from collections.abc import Mapping

SECOND = 1_000_000_000


def open_sources(domain: str, longest: int, transport: str, config: Mapping[str, Mapping[str, object]]) -> int:
    """Makes the sources for a feed and sends the longest message on one; returns the longest possible."""
    settings = Config.load(config)
    with ipcbus.Context(settings, domain=domain) as context:
        sources = _open_sources(context, settings, transport, Survey(2, longest, longest, {"a": 1, "b": 1}))
        sources["a"].send(bytes(longest), flush=True)
        return sources["b"].message_max


@pytest.mark.parametrize("longest", [0, 8176, 8177, 64_046, 1_000_003])
def test_smx_session_carries_the_longest_message(domain: str, longest: int) -> None:
    assert open_sources(domain, longest, "lbtsmx", {}) >= longest


def test_smx_options_of_the_user_are_only_raised(domain: str) -> None:
    config = {
        "source": {"transport_lbtsmx_datagram_max_size": 16384, "transport_lbtsmx_transmission_window_size": 4_194_304}
    }
    assert open_sources(domain, 10_000, "lbtsmx", config) == 16384 - 16


@pytest.mark.parametrize("longest", [65_384, 65_385])
def test_ipc_session_carries_what_a_datagram_holds_and_more(domain: str, longest: int) -> None:
    assert open_sources(domain, longest, "lbtipc", {}) == 65_384


@pytest.mark.parametrize(("speed", "seconds"), [(1.0, 100.0), (10.0, 10.0), (0.5, 200.0)])
def test_pace_follows_the_time_stamps(monkeypatch: pytest.MonkeyPatch, speed: float, seconds: float) -> None:
    now = 5.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace = ReplayPace(speed, 7 * SECOND, SignalHandler())
    assert pace.early(107 * SECOND) == pytest.approx(seconds)
    now += seconds + 1
    assert pace.early(107 * SECOND) == pytest.approx(-1)
    assert not pace.as_fast_as_possible


def test_pace_of_maximum_speed() -> None:
    assert ReplayPace(MAX_SPEED, 0, SignalHandler()).as_fast_as_possible
