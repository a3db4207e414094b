"""Fixtures of the tests with real processes."""

from __future__ import annotations

from tests.kit.fixtures import mode, peers, zygote

__all__ = ["mode", "peers", "zygote"]
