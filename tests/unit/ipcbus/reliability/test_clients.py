from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.reliability.clients import TABLE, Answer, Cause, Clients, ClientSettings, State
from ipcbus.wire import udp_packets

if TYPE_CHECKING:
    from collections.abc import Sequence

SECOND = 1_000_000_000


def clients(**terms: int) -> Clients:
    return Clients(7, ClientSettings(**terms), b"0123456789abcdef")


def ack(topics: Sequence[int], revision: int, page: int = 0, pages: int = 1, context_id: int = 1) -> udp_packets.Ack:
    return udp_packets.Ack(udp_packets.ACK, 0, 7, 99, 0, 0, context_id, revision, 0, 2, page, pages, "a", tuple(topics))


def test_the_table_answers_each_cause_in_each_state_where_it_can_come() -> None:
    never = {(State.UNKNOWN, cause) for cause in (Cause.ACK, Cause.NAK, Cause.LEAVE, Cause.SILENCE)}
    never |= {(State.PROVEN, Cause.FULL), (State.KNOWN, Cause.FULL)}
    assert {(state, cause) for state in State for cause in Cause} - set(TABLE) == never
    assert all(step.answer is not Answer.REPAIR for (state, _), step in TABLE.items() if state is State.UNKNOWN)


def test_cookies_differ_by_address_session_secret_and_epoch() -> None:
    one = clients()
    others = [Clients(8, ClientSettings(), b"0123456789abcdef"), Clients(7, ClientSettings(), b"0123456789abcdeg")]
    found = [one.cookie("a", 0), one.cookie("b", 0), one.cookie("a", 30 * SECOND)]
    found += [other.cookie("a", 0) for other in others]
    assert len(set(found)) == 5
    assert one.cookie("a", 30 * SECOND, 1) == one.cookie("a", 0)


def test_a_list_counts_when_all_its_pages_have_come() -> None:
    found = clients()
    found.connect("a", found.cookie("a", 0), 0)
    client = found.get("a")
    assert client is not None
    found.ack(client, ack([1], 5))
    found.ack(client, ack([3], 7, 1, 2))
    assert client.topics == {1}
    found.ack(client, ack([2], 6))  # an older list that comes late
    assert client.topics == {1}
    found.ack(client, ack([2], 7, 0, 2))
    assert client.topics == {2, 3}


def test_a_list_that_is_too_long_is_not_taken() -> None:
    found = clients(topics_max=256)
    found.connect("a", found.cookie("a", 0), 0)
    client = found.get("a")
    assert client is not None
    for page in (0, 1, 65534):
        found.ack(client, ack([page], 5, page, 65535))
    assert client.topics == frozenset()
    found.ack(client, ack([1], 6))
    assert client.topics == {1}


def test_the_longest_silent_is_dropped_first() -> None:
    found = clients(activity_timeout=10)
    for place, address in enumerate("abc"):
        found.connect(address, found.cookie(address, place), place)
    first = found.get("a")
    assert first is not None
    assert found.authenticate("a", first.cookie, 8) is first
    assert found.authenticate("a", first.cookie + 1, 9) is None
    assert found.next_ns == 11
    assert found.turn(12) == 2
    assert found.addresses == ("a",)
    assert found.next_ns == 18


def test_pages_of_an_older_list_do_not_mix_with_those_of_a_newer_one() -> None:
    found = clients()
    found.connect("a", found.cookie("a", 0), 0)
    client = found.get("a")
    assert client is not None
    found.ack(client, ack([1], 7, 0, 2))
    found.ack(client, ack([9], 6, 1, 2))
    assert client.topics == frozenset()
    found.ack(client, ack([2], 7, 1, 2))
    assert client.topics == {1, 2}


def test_a_topic_that_is_received_again_starts_again() -> None:
    found = clients()
    found.connect("a", found.cookie("a", 0), 0)
    client = found.get("a")
    assert client is not None
    found.ack(client, ack([1, 2], 1))
    client.starts.update({1: 10, 2: 20})
    found.ack(client, ack([2], 2))
    assert client.starts == {2: 20}


def test_a_receiver_that_begins_another_stay_has_no_part_in_the_starts_of_the_one_before() -> None:
    found = clients()
    cookie = found.cookie("a", 0)
    found.connect("a", cookie, 0)
    client = found.get("a")
    assert client is not None
    found.ack(client, ack([1], 1))
    client.starts[1] = 10
    found.connect("a", cookie, 1)  # it asks how far the source has sent
    assert client.starts == {1: 10}
    found.connect("a", 0, 2)
    assert client.starts == {1: 10}  # anybody may have sent this
    assert [each.is_unsure for each in found.known] == [False]
    found.connect("a", cookie, 3)
    assert (client.starts, client.is_unsure) == ({}, True)
    found.ack(client, udp_packets.Ack(udp_packets.ACK, 0, 7, 99, 0, 0, 2, 1, 0, 2, 0, 0, "", ()))
    assert client.is_unsure  # this one says nothing of who it is
    found.ack(client, ack([1], 1, context_id=2))
    assert [each.is_unsure for each in found.known] == [False]
