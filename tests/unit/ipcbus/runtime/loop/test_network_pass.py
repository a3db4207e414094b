"""Messages of the session that was read last are delivered read by read, until something else is to be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.delivery.pump import URGENT, Pump
from ipcbus.runtime.loop.network_pass import deliver_fetched
from ipcbus.transport.udp.datagram_relay import CAME, HAS_MORE
from tests.kit.sessions import received

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG_NS = 60_000_000_000


class Fetching:
    """A pump, and a fetch that publishes a message each time, until it says that something else has come."""

    def __init__(self, domain: str) -> None:
        self.pump = Pump()
        self.pair, _, self.source = received(domain, self.pump)
        assert self.pump.take()
        self.left = 3

    def __call__(self) -> int:
        self.left -= 1
        if self.left >= 0:
            self.source.send(b"", flush=True)
        return CAME if self.left >= 0 else HAS_MORE


@pytest.fixture
def fetching(domain: str) -> Iterator[Fetching]:
    made = Fetching(domain)
    yield made
    made.pair.close()


def test_each_read_is_delivered_until_something_else_comes(fetching: Fetching) -> None:
    assert deliver_fetched(fetching.pump, fetching, LONG_NS, False) == 3
    assert fetching.left == -1


def test_a_caller_that_awaits_messages_gets_the_first_ones_at_once(fetching: Fetching) -> None:
    assert deliver_fetched(fetching.pump, fetching, LONG_NS, True) == 1
    assert fetching.left == 2


def test_it_returns_after_the_time(fetching: Fetching) -> None:
    assert deliver_fetched(fetching.pump, fetching, 0, False) == 1


def test_it_returns_where_sessions_need_attention(fetching: Fetching) -> None:
    fetching.pump.attention = True
    assert deliver_fetched(fetching.pump, fetching, LONG_NS, False) == 0


def test_it_reads_nothing_while_another_thread_waits_for_the_context(fetching: Fetching) -> None:
    fetching.pump.want(URGENT)
    assert deliver_fetched(fetching.pump, fetching, LONG_NS, False) == 0
    assert fetching.left == 3
