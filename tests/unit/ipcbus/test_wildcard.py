"""The receiving handle of a pattern."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.wildcard import compile_pattern
from tests.kit.bus import LBTIPC, Bus
from tests.kit.look import advert
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def bus(domain: str) -> Iterator[Bus]:
    made = Bus(domain, LBTIPC, "sequential")
    yield made
    made.close()


def test_a_new_one_has_nothing(bus: Bus) -> None:
    receiver = bus.context().wildcard_receiver(r"quotes\..*")
    assert isinstance(receiver, ipcbus.WildcardReceiver)
    assert (receiver.pattern, receiver.delivered, receiver.lost) == (r"quotes\..*", 0, 0)
    assert receiver.sessions == []
    assert repr(receiver) == r"<WildcardReceiver 'quotes\\..*'>"
    receiver.close()
    assert "closed" in repr(receiver)


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        ("a(b", r"'a\(b' is an invalid regular expression: .* at position 1"),
        ("a**", "at position 2"),
        ("[z-a]", "at position 1"),
        ("a{99999999999999999999}", "too large"),
        ("", "is not a pattern"),
        (None, "None is not a pattern"),
        (b"a", "is not a pattern"),
        (re.compile("a"), "is not a pattern"),
    ],
)
def test_what_is_no_pattern_is_refused_before_anything_is_made(bus: Bus, pattern: object, match: str) -> None:
    context = bus.context()
    with pytest.raises(ipcbus.ConfigError, match=match):
        context.wildcard_receiver(pattern)  # type: ignore[arg-type]
    assert advert(context).receivers == ()


def test_a_pattern_is_compiled_as_it_is() -> None:
    assert compile_pattern(r"a\.b").fullmatch("a.b")


def test_options_of_both_scopes_may_be_given(bus: Bus) -> None:
    context = bus.context()
    receiver = context.wildcard_receiver("a", None, resolver_no_source_linger_timeout=5, receive_queue_maximum=7)
    assert receiver._subscription.options.receive_queue_maximum == 7
    with pytest.raises(ipcbus.ConfigError, match="resolver_no_source_linger_timeout"):
        context.wildcard_receiver("a", resolver_no_source_linger_timeout=-1)
    with pytest.raises(ipcbus.ConfigError, match="belongs to scope source"):
        context.wildcard_receiver("a", transport="lbtipc")  # type: ignore[call-arg]
    with pytest.raises(ipcbus.ConfigError, match="belongs to scope wildcard_receiver"):
        context.receiver("a", resolver_no_source_linger_timeout=5)  # type: ignore[call-arg]


def test_others_see_pattern_and_counters(bus: Bus) -> None:
    context = bus.context("watching")
    receiver = context.wildcard_receiver("a.*", lambda message: None)
    one, other = bus.source("ab"), bus.source("ac")
    for source in (one, other):
        bus.joined(source)
        source.send(body(0, 100), flush=True)
    bus.until(lambda: receiver.delivered == 2, "the messages")
    (row,) = advert(context).receivers
    assert (row.topic, row.wildcard, row.lbm_msgs_rcved, row.bytes_rcved, row.events) == ("a.*", True, 2, 200, 2)
    receiver.close()
    assert advert(context).receivers == ()


def test_a_long_pattern_is_shown_cut(bus: Bus) -> None:
    context = bus.context()
    pattern = "|".join(f"topic{number}" for number in range(100))
    receiver = context.wildcard_receiver(pattern)
    assert advert(context).receivers[0].topic == pattern[:255]
    source = bus.source("topic99")
    bus.joined(source)
    source.send(body(0), flush=True)
    bus.until(lambda: receiver.delivered == 1, "the message")


def test_a_closed_context_makes_none(bus: Bus) -> None:
    context = bus.context()
    context.close()
    with pytest.raises(ipcbus.ClosedError):
        context.wildcard_receiver("a")
