"""The cases of the one suite: every transport, in every mode, in every form of receiving."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from ipcbus.transport import uplink
from tests.kit.bus import KINDS, LBTRM, MODES, Bus, Kind
from tests.kit.forms import FORMS, Taker
from tests.kit.network import isolated_or_skip

if TYPE_CHECKING:
    from collections.abc import Iterator


IN_EVERY_MODE = ("test_contexts", "test_ends")
"""Files whose tests over UDP run in every mode in the short form too; the others' there only in the first one.

Who drives a context is one matter, and what brings its datagrams another: both were looked at together there.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves most of the suite over UDP in the other modes to the long form: `make test` has four minutes."""
    for item in items:
        values = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        kind, mode = values.get("kind"), values.get("mode", MODES[0])
        over_udp = isinstance(kind, Kind) and (kind.over_udp or item.path.stem == "test_moving")
        if over_udp and mode != MODES[0] and item.path.stem not in IN_EVERY_MODE:
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
        monkeypatch.setattr(uplink, "_SILENT_NS", 0)
    with isolated_or_skip() if kind is LBTRM else contextlib.nullcontext():
        made = Bus(domain, kind, mode)
        yield made
        made.close()
