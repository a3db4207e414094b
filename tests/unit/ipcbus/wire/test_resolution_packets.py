from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from ipcbus.wire import resolution_packets, wire_layout
from ipcbus.wire.resolution_packets import Advert, FinalAdvert, Head, Packet, Query, Session, WildcardQuery
from tests.kit.cases import each_of

_TO_EACH = (wire_layout.TRANSPORT_LBTRU, wire_layout.TRANSPORT_LBTTCP)


def texts(shortest: int, longest: int) -> st.SearchStrategy[str]:
    letters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
    return st.text(letters, max_size=longest).filter(lambda text: shortest <= len(text.encode()) <= longest)


TOPICS = texts(1, 255)
HEADS = st.builds(
    Head,
    context_id=st.integers(1, 2**32 - 1),
    pid=st.integers(0, 2**32 - 1),
    name=texts(0, 31),
    tag=st.sampled_from(["default", "+0123abc", "x"]),
    number=st.integers(0, resolution_packets.NUMBER_MAX),
)
PORTS = st.integers(1, 65535)
U32 = st.integers(0, 2**32 - 1)
HOSTS = st.sampled_from(["127.0.0.1", "10.0.0.1", "::1", "2001:db8::1"])


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    group = draw(st.sampled_from(["", "224.9.10.11", "ff02::5"]))
    own = wire_layout.TRANSPORT_LBTRM if group else draw(st.sampled_from(_TO_EACH))
    rings = wire_layout.TRANSPORT_LBTIPC, wire_layout.TRANSPORT_LBTSMX
    transport = draw(st.sampled_from([*rings, own]))
    return Session(
        transport=transport,
        source_paced=draw(st.booleans()),
        topics_max=draw(st.integers(1, wire_layout.TOPIC_MASK + 1)),
        session_id=draw(st.integers(1, 2**32 - 1)),
        local=draw(U32),
        transport_id=draw(U32),
        window=draw(st.integers(0, 2**64 - 1)),
        host=draw(HOSTS),
        port=draw(PORTS),
        group=group,
        group_port=draw(PORTS) if group else 0,
        tcp=not group and transport in rings and draw(st.booleans()),
    )


GROUPS = st.lists(
    st.tuples(sessions(), st.dictionaries(st.integers(0, wire_layout.TOPIC_MASK), TOPICS, min_size=1, max_size=4)),
    min_size=1,
    max_size=3,
)
HEAD = Head(7, 1, "feed", "default", 5)
SESSION = Session(wire_layout.TRANSPORT_LBTRU, True, 64, 9, 0, 0, 1 << 20, "127.0.0.1", 14380)
GOOD = [
    resolution_packets.advert(HEAD, 35, [(SESSION, {1: "a", 2: "b"})]),
    resolution_packets.query(HEAD, ["a", "b"]),
    resolution_packets.wildcard_query(HEAD, ["", "b"]),
    resolution_packets.final(HEAD, [(9, [1, 2])]),
    resolution_packets.final(HEAD, []),
]


@given(st.binary(max_size=300))
def test_any_bytes_are_a_packet_or_none(packet: bytes) -> None:
    resolution_packets.parse(packet)


@given(st.sampled_from(GOOD), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4), st.integers(0))
def test_a_good_packet_that_was_changed_and_cut(packet: bytes, changes: list[tuple[int, int]], length: int) -> None:
    changed = bytearray(packet)
    for at, value in changes:
        changed[at % len(changed)] = value
    found = resolution_packets.parse(bytes(changed[: length % (len(changed) + 1)]))
    if found is not None:
        check(found)
    assert not (resolution_packets.fault_of_head(bytes(changed)) and resolution_packets.parse(bytes(changed)))


def check(found: Packet) -> None:
    """Nothing that is out of its bounds gets through."""
    assert 0 < found.head.context_id < 2**32
    assert len(found.head.name.encode()) <= 31
    assert 1 <= len(found.head.tag) <= 8
    if isinstance(found, Advert):
        assert 1 <= found.ttl <= resolution_packets.TTL_MAX
        for session, topics in found.groups:
            assert 1 <= session.port <= 65535
            assert 1 <= session.topics_max <= wire_layout.TOPIC_MASK + 1
            assert bool(session.group) == bool(session.group_port)
            assert topics
            for number, topic in topics.items():
                assert 0 <= number <= wire_layout.TOPIC_MASK
                assert 1 <= len(topic.encode()) <= 255
                assert "\0" not in topic


@settings(max_examples=25)
@given(HEADS, st.integers(1, resolution_packets.TTL_MAX), GROUPS, st.booleans())
def test_advert(head: Head, ttl: int, groups: list[tuple[Session, dict[int, str]]], retains: bool) -> None:
    retaining = frozenset((session.session_id, min(topics)) for session, topics in groups if retains)
    packet = resolution_packets.advert(head, ttl, groups, retaining)
    found = resolution_packets.parse(packet)
    assert isinstance(found, Advert)
    assert (found.head, found.ttl, found.groups) == (head, ttl, tuple(groups))
    assert found.retaining == retaining
    size = (
        resolution_packets.head_size(head.name)
        - 2
        + sum(resolution_packets.session_size(session) for session, _ in groups)
    )
    assert len(packet) == size + sum(
        resolution_packets.topic_size(topic) for _, topics in groups for topic in topics.values()
    )


@given(HEADS, st.lists(TOPICS, min_size=1, max_size=5))
def test_queries(head: Head, topics: list[str]) -> None:
    packet = resolution_packets.query(head, topics)
    assert resolution_packets.parse(packet) == Query(head, tuple(topics))
    assert len(packet) == resolution_packets.head_size(head.name) + sum(map(resolution_packets.text_size, topics))
    assert resolution_packets.parse(resolution_packets.wildcard_query(head, ["", *topics])) == WildcardQuery(
        head, ("", *topics)
    )


@given(HEADS, st.lists(st.tuples(U32, st.lists(U32, max_size=4).map(tuple)), max_size=4))
def test_final(head: Head, groups: list[tuple[int, tuple[int, ...]]]) -> None:
    packet = resolution_packets.final(head, groups)
    assert resolution_packets.parse(packet) == FinalAdvert(head, tuple(groups))
    size = resolution_packets.head_size(head.name) - 2 + resolution_packets.FINAL_GROUP_BYTES * len(groups)
    assert len(packet) == size + resolution_packets.NUMBER_BYTES * sum(len(numbers) for _, numbers in groups)


def changed(**fields: object) -> bytes:
    session = Session(**{**{name: getattr(SESSION, name) for name in Session.__dataclass_fields__}, **fields})
    return resolution_packets.advert(HEAD, 35, [(session, {1: "a"})])


@each_of(
    "packet",
    [
        b"",
        b"\x01\x01",
        *(packet[:-1] for packet in GOOD),
        *(packet + b"\0" for packet in GOOD),
        resolution_packets.advert(HEAD, 0, [(SESSION, {1: "a"})]),
        resolution_packets.advert(HEAD, 35, []),
        resolution_packets.advert(HEAD, 35, [(SESSION, {})]),
        resolution_packets.advert(HEAD, 35, [(SESSION, {wire_layout.TOPIC_MASK + 1: "a"})]),
        resolution_packets.advert(HEAD, 35, [(SESSION, {1: ""})]),
        resolution_packets.advert(HEAD, 35, [(SESSION, {1: "a\0b"})]),
        resolution_packets.advert(HEAD, 35, [(SESSION, {1: "aXb"})]).replace(b"X", b"\xff"),
        changed(transport=0),
        changed(transport=6),
        changed(transport=wire_layout.TRANSPORT_LBTTCP, group="224.0.0.1", group_port=5),
        changed(transport=wire_layout.TRANSPORT_LBTRM),  # without a group
        changed(group="224.0.0.1", group_port=5),  # unicast with one
        changed(topics_max=0),
        changed(topics_max=wire_layout.TOPIC_MASK + 2),
        changed(session_id=0),
        changed(port=0),
        changed(host="0.0.0.0"),
        changed(host="::"),
        changed(host="224.0.0.1"),
        changed(host=""),
        changed(transport=wire_layout.TRANSPORT_LBTRM, group="10.0.0.1", group_port=5),
        changed(transport=wire_layout.TRANSPORT_LBTRM, group="224.0.0.1", group_port=0),
        changed(transport=wire_layout.TRANSPORT_LBTIPC, group_port=5),
        resolution_packets.query(HEAD, []),
        resolution_packets.query(HEAD, [""]),
        resolution_packets.wildcard_query(HEAD, []),
        resolution_packets.query(Head(0, 1, "", "default", 1), ["a"]),
        resolution_packets.query(Head(resolution_packets.CONTEXT_MAX + 1, 1, "", "default", 1), ["a"]),
        resolution_packets.query(Head(1, 1, "", "", 1), ["a"]),
        resolution_packets.query(Head(1, 1, "", "a\0b", 1), ["a"]),
        resolution_packets.query(Head(1, 1, "x" * 32, "default", 1), ["a"]),
        resolution_packets.query(Head(1, 1, "", "default", resolution_packets.NUMBER_MAX + 1), ["a"]),
    ],
)
def test_what_contradicts_itself_is_none(packet: bytes) -> None:
    assert resolution_packets.parse(packet) is None


@each_of(
    ("packet", "fault"),
    [
        (b"", "malformed"),
        (b"\x02", "malformed"),
        (b"\x01", "ver"),
        (b"\x01" + GOOD[0][1:], "ver"),
        (b"\x02\x00" + GOOD[0][2:], "type"),
        (b"\x02\x05" + GOOD[0][2:], "type"),
        (GOOD[0][:-1], ""),
        (GOOD[0], ""),
    ],
)
def test_what_is_wrong_with_a_head(packet: bytes, fault: str) -> None:
    assert resolution_packets.fault_of_head(packet) == fault


def test_a_count_of_more_than_there_is_costs_nothing() -> None:
    assert (
        resolution_packets.parse(GOOD[1][: resolution_packets.head_size("feed") - 2] + struct.pack("!H", 65535)) is None
    )
