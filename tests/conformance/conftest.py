"""The cases of the one suite: every transport, in every mode, in every form of receiving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.bus import KINDS, MODES, Bus, Kind
from tests.kit.forms import FORMS, Taker

if TYPE_CHECKING:
    from collections.abc import Iterator


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
def bus(domain: str, kind: Kind, mode: str) -> Iterator[Bus]:
    """Contexts of the transport and mode under test."""
    made = Bus(domain, kind, mode)
    yield made
    made.close()
