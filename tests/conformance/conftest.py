"""The cases of the one suite: every transport, in every mode, in every form of receiving."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from ipcbus.transport.udp import udp_sender
from tests.kit.bus import KINDS, LBTIPC_SOURCE_PACED, LBTRM, LBTSMX, LBTTCP, MODES, Bus, Kind
from tests.kit.forms import FORMS, Taker
from tests.kit.network import isolated_or_skip

if TYPE_CHECKING:
    from collections.abc import Iterator


IN_EVERY_MODE = ("test_contexts", "test_ends", "test_histories_at_random", "test_udp_pauses")
"""Files whose tests over UDP run in every mode in the short form too; the others' there only in the first one.

Who drives a context is one matter, and what brings its datagrams another: both were looked at together there.
"""


IN_ONE_MODE = (
    *("test_event_queues", "test_event_queue_ends", "test_evicting", "test_notifications", "test_sequence_info"),
    "test_silence",
)
"""Files whose tests wait for timers or are many: in the short form each transport runs in one mode, each in another."""


OVER_TCP = (
    *("test_batching", "test_content", "test_dropped", "test_ends", "test_fragments", "test_joining", "test_late_join"),
    *("test_many_threads", "test_requests", "test_source_filtering", "test_wildcards"),
)
"""Files whose tests run over TCP in the short form: the others say nothing of it that they do not say over UDP."""

OVER_TCP_IN_ONE_MODE = ("test_tcp_bursts", "test_udp_undriven", "test_undriven_warning")
"""As OVER_TCP, for files that name the one mode that their tests are about."""


def in_short_form(file: str, kind: Kind, mode: str) -> bool:
    """Whether `make test`, which has four minutes, runs a case; `make stress` runs the others."""
    if kind is LBTTCP:
        return file in OVER_TCP_IN_ONE_MODE or (file in OVER_TCP and mode == MODES[0])
    if kind is LBTIPC_SOURCE_PACED and mode != MODES[0] and file not in IN_ONE_MODE:
        return False  # the same ring as LBT-IPC's, which runs in every mode
    if kind is LBTSMX and mode == "split" and file not in (*IN_ONE_MODE, *IN_EVERY_MODE):
        return False  # split is a matter of the context, and LBT-IPC runs there
    if file in IN_ONE_MODE and not kind.over_udp:
        return KINDS.index(kind) % len(MODES) == MODES.index(mode)
    over_udp = kind.over_udp or file == "test_moving"
    return not over_udp or mode == MODES[0] or file in IN_EVERY_MODE


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the cases that are left to the long form."""
    for item in items:
        values = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        kind, mode = values.get("kind"), values.get("mode")
        if isinstance(kind, Kind) and mode is not None and not in_short_form(item.path.stem, kind, mode):
            item.add_marker(pytest.mark.long)


@pytest.fixture(params=KINDS, ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> Kind:
    """A transport with its pacing; a test may name fewer with `parametrize`."""
    found: Kind = request.param
    return found


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """Who drives the contexts."""
    return str(request.param)


@pytest.fixture(params=FORMS, ids=lambda form: str(form.name))
def form(request: pytest.FixtureRequest) -> type[Taker]:
    """A form of receiving."""
    found: type[Taker] = request.param
    return found


@pytest.fixture
def bus(domain: str, kind: Kind, mode: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    """Contexts of the transport and mode under test."""
    if kind.over_udp and mode == "sequential":
        # While one thread closes a source it drives no receiver: that one cannot say that it has everything.
        monkeypatch.setattr(udp_sender, "_SILENT_NS", 0)
    with isolated_or_skip() if kind is LBTRM else contextlib.nullcontext():
        made = Bus(domain, kind, mode)
        yield made
        made.close()
