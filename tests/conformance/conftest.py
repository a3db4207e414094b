"""The cases of the one suite: every transport, in every mode, in every form of receiving."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from ipcbus.transport.udp import udp_sender
from tests.kit.bus import KINDS, LBTRM, MODES, Bus, Kind
from tests.kit.forms import FORMS, Taker
from tests.kit.network import isolated_or_skip

if TYPE_CHECKING:
    from collections.abc import Iterator


MODE_OF = {
    "lbtipc": "embedded",
    "lbtsmx": "sequential",
    "lbtipc-source-paced": "split",
    "lbtru": "embedded",
    "lbttcp": "sequential",
    "lbtrm": "split",
}
"""In which mode the short form runs a transport: who drives a context is one matter, what brings messages another."""

IN_EVERY_MODE = (
    *("test_contexts", "test_histories_at_random", "test_many_threads", "test_udp_pauses", "test_udp_undriven"),
    "test_undriven_warning",
)
"""Files that are about both: in the short form too their tests run over every transport in every mode."""

OVER_TCP = (
    *("test_batching", "test_content", "test_dropped", "test_ends", "test_fragments", "test_joining", "test_late_join"),
    *("test_many_threads", "test_requests", "test_source_filtering", "test_tcp_bursts", "test_udp_undriven"),
    *("test_undriven_warning", "test_wildcards"),
)
"""Files whose tests run over TCP in the short form: the others say nothing of it that they do not say over UDP."""


def in_short_form(item: pytest.Function) -> bool:
    """Whether `make test` runs a case of a test that has transports and modes; `make stress` runs the others.

    The first transport runs in the first mode with all forms of receiving. Each other transport runs in its own mode
    with one form, in turn, and the first transport in each mode that is then still missing.
    """
    file = item.path.stem
    values: dict[str, Any] = item.callspec.params
    kind, mode, form = values["kind"].name, values["mode"], values.get("form")
    if kind == "lbttcp" and file not in OVER_TCP:
        return False
    named: dict[str, Any] = {mark.args[0]: mark.args[1] for mark in item.iter_markers("parametrize")}
    kinds, modes = [each.name for each in named.get("kind", KINDS)], named.get("mode", MODES)
    if (kind, mode) == (kinds[0], modes[0]):
        return True
    missing = kind == kinds[0] and mode not in [MODE_OF[each] for each in kinds]
    if mode != MODE_OF[kind] and not missing and file not in IN_EVERY_MODE:
        return False
    return form not in FORMS or FORMS.index(form) == [*MODE_OF].index(kind) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the cases that are left to the long form."""
    for item in items:
        values = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if isinstance(values.get("kind"), Kind) and "mode" in values and not in_short_form(item):
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
