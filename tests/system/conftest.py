"""Fixtures of the tests with real processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.bus import LBTIPC, Bus
from tests.kit.fixtures import mode, peers, zygote

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["mode", "peers", "zygote"]


@pytest.fixture
def bus(domain: str) -> Iterator[Bus]:
    """The contexts of this process, whose receivers have their own threads."""
    found = Bus(domain, LBTIPC, "embedded")
    yield found
    found.close()
