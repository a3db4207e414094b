"""Fixtures of the tests with several processes that race."""

from __future__ import annotations

from tests.kit.fixtures import mode, peers, zygote

__all__ = ["mode", "peers", "zygote"]
