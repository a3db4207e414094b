"""Which session a source goes to: pools, ids, and sources that disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ipcbus
from tests.kit.bus import LBTIPC, LBTSMX, on_rings
from tests.kit.forms import CallbackTaker
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus import Source
    from tests.kit.bus import Bus

SMALL_POOL = {
    "transport_lbtipc_id_low": 500,
    "transport_lbtipc_id_high": 501,
    "transport_lbtsmx_id_low": 500,
    "transport_lbtsmx_id_high": 501,
}


@pytest.fixture(params=["embedded"])
def mode(request: pytest.FixtureRequest) -> str:
    """Sessions do not depend on who drives."""
    return str(request.param)


def ids(sources: list[Source]) -> list[int]:
    """The transport ids in source strings."""
    return [int(source.source.rpartition(":")[2]) for source in sources]


@on_rings
def test_sources_go_round_the_pool(bus: Bus) -> None:
    context = bus.context()
    first = bus.kind.first_id
    sources = [bus.source(f"topic {number}", context, **bus.kind.small()) for number in range(12)]
    assert ids(sources) == [first + number % 5 for number in range(12)]
    assert len({source.source for source in sources}) == 5
    assert all(source.source.split(":")[0] == bus.kind.scheme for source in sources)


@on_rings
def test_the_pool_is_what_the_options_say(bus: Bus) -> None:
    context = bus.context(**SMALL_POOL)
    sources = [bus.source(f"topic {number}", context, **bus.kind.small()) for number in range(5)]
    assert ids(sources) == [500, 501, 500, 501, 500]


@on_rings
def test_a_session_ends_with_its_last_source_and_its_id_is_free_again(bus: Bus) -> None:
    context = bus.context(**SMALL_POOL)
    one, two = (bus.source(topic, context, **bus.kind.small()) for topic in "ab")
    name = one.source
    one.close()
    again = bus.source("c", context, **bus.kind.small())
    assert ids([again]) == [500]
    assert again.source != name
    assert two.source != again.source


@on_rings
def test_an_explicit_id_is_used_and_shared(bus: Bus) -> None:
    context = bus.context()
    one, two = (bus.source(topic, context, **bus.kind.id(777)) for topic in "ab")
    assert ids([one, two]) == [777, 777]
    assert one.source == two.source


@on_rings
def test_an_explicit_id_inside_the_pool_counts_as_used(bus: Bus) -> None:
    context = bus.context(**SMALL_POOL)
    named = bus.source("named", context, **bus.kind.small(), **bus.kind.id(500))
    other = bus.source("other", context, **bus.kind.small())
    assert ids([named, other]) == [500, 501]


@on_rings
def test_two_contexts_have_sessions_of_their_own_under_one_id(bus: Bus) -> None:
    one, two = (bus.source("t", bus.context()) for _ in range(2))
    assert ids([one]) == ids([two])
    assert one.source != two.source


@on_rings
def test_sources_that_disagree_go_to_other_sessions_of_the_pool(bus: Bus) -> None:
    context = bus.context(**SMALL_POOL)
    option = f"transport_{bus.kind.transport}_transmission_window_size"
    small = bus.source("small", context, **{**bus.kind.small(), option: bus.kind.window})
    large = bus.source("large", context, **{**bus.kind.small(), option: 4 * bus.kind.window})
    again = [bus.source(f"small {n}", context, **{**bus.kind.small(), option: bus.kind.window}) for n in range(3)]
    assert ids([small, large]) == [500, 501]
    assert ids(again) == [500, 500, 500]


@on_rings
def test_a_pool_without_a_session_that_agrees_is_an_error_with_the_cure(bus: Bus) -> None:
    context = bus.context(**SMALL_POOL)
    option = f"transport_{bus.kind.transport}_maximum_receivers_per_transport"
    for number in (3, 4):
        bus.source(str(number), context, **bus.kind.small(), **{option: number})
    with pytest.raises(ipcbus.ConfigError, match=f"transport_{bus.kind.transport}_id"):
        bus.source("5", context, **bus.kind.small(), **{option: 5})
    assert bus.source("3 again", context, **bus.kind.small(), **{option: 3}).sequence_number == -1


@on_rings
def test_an_explicit_id_with_other_options_is_an_error_that_names_them(bus: Bus) -> None:
    context = bus.context()
    option = f"transport_{bus.kind.transport}_maximum_receivers_per_transport"
    bus.source("one", context, **bus.kind.id(600), **{option: 7})
    with pytest.raises(ipcbus.ConfigError, match="600") as raised:
        bus.source("two", context, **bus.kind.id(600), **{option: 9})
    assert "7" in str(raised.value)
    assert "9" in str(raised.value)
    assert f"transport_{bus.kind.transport}_id" in str(raised.value)


def test_a_session_that_is_full_of_topics_is_an_error_with_the_cure(bus: Bus) -> None:
    context = bus.context()
    most = f"{bus.kind.prefix}_maximum_topics_per_transport"
    options = {**bus.kind.id(600), most: 4}
    sources = [bus.source(str(number), context, **options) for number in range(4)]
    with pytest.raises(ipcbus.ConfigError, match=most):
        bus.source("one more", context, **options)
    sources[1].close()
    assert bus.source("one more", context, **options).source == sources[0].source


@pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
def test_transports_have_pools_of_their_own(bus: Bus) -> None:
    context = bus.context()
    ipc, smx = bus.source("a", context), bus.source("b", context, transport="LBT-SMX")
    assert ids([ipc, smx]) == [LBTIPC.first_id, LBTSMX.first_id]


def test_many_topics_of_one_session_keep_their_order_and_numbers(bus: Bus) -> None:
    topics = [f"topic {number}" for number in range(60)]
    context, receiving = bus.context("sending"), bus.context("receiving")
    sources = [bus.source(topic, context, **bus.kind.id(600)) for topic in topics]
    takers = [CallbackTaker(bus, topic, receiving) for topic in topics]
    for source in sources:
        bus.joined(source)
    for number in range(10):
        for source in sources:
            source.send(body(number))
    sources[0].flush()
    for taker in takers:
        assert taker.data(10) == [body(number) for number in range(10)]
        assert taker.numbers == list(range(10))
    assert len({taker.receiver.sessions[0].source for taker in takers}) == 1


def test_a_registry_grows_with_its_topics(bus: Bus) -> None:
    def made() -> Iterator[Source]:
        for number in range(150):
            yield bus.source(f"topic {number}", context, **bus.kind.small(), **bus.kind.id(600 + number % 2))

    context = bus.context("sending")
    taker = CallbackTaker(bus, "topic 149")
    sources = list(made())
    bus.joined(sources[-1])
    sources[-1].send(b"the last", flush=True)
    assert taker.data(1) == [b"the last"]
    assert sources[0].receivers == 0


def test_sources_of_long_messages_share_sessions_outside_the_pool(domain: str) -> None:
    with ipcbus.Context({"context": SMALL_POOL}, domain=domain) as context:
        plain = [context.source(topic, transport="lbtsmx") for topic in "ab"]
        large = [
            context.source(topic, message_max=longest) for topic, longest in zip("cdef", (9, 9, 99, 10**6), strict=True)
        ]
        assert ids(plain) == [500, 501]
        assert ids(large) == [65535, 65535, 65535, 65534]
        assert [source.message_max for source in large] == [9, 9, 99, 10**6]
        own = context.source("g", message_max=9, transport_lbtsmx_id=7)
        assert ids([own]) == [7]
        receiver = context.receiver("f")
        large[3].wait_for_receivers(1, 30)
        large[3].send(bytes(10**6))
        with pytest.raises(
            ipcbus.MessageTooLarge, match="exceeds message_max = 9 of its source; make the source with message_max=10"
        ):
            large[0].send(bytes(10))
        message = receiver.receive(30)
        assert message is not None
        assert message.type is ipcbus.MessageType.BOS
        message = receiver.receive(30)
        assert message is not None
        assert len(message.data) == 10**6
