"""The topics of a datagram, whatever its bytes are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipcbus.wire.datagram_topics import topics_of
from tests.kit.datagrams import Item, compose, fragments, info


def test_topics_of_messages_fragments_and_infos() -> None:
    items = [Item(3, 0, b"abc"), Item(3, 1, b""), Item(5, 0, b"x" * 17), *fragments(2, bytes(40), 20, topic=9)]
    datagram = compose(*items, info(7, topic=(1 << 24) - 1))
    assert topics_of(datagram) == {3, 5, 9, (1 << 24) - 1}
    assert topics_of(b"prefix" + datagram, start=6) == {3, 5, 9, (1 << 24) - 1}


def test_malformed_datagrams_have_no_known_topics() -> None:
    datagram = compose(Item(3, 0, b"abc"))
    for bytes_, start in ((datagram[:-1], 0), (b"", 0), (datagram, 1), (datagram, 99), (datagram, -1)):
        assert topics_of(bytes_, start) is None


@given(st.binary(max_size=100), st.integers(-5, 110))
def test_any_bytes(datagram: bytes, start: int) -> None:
    found = topics_of(datagram, start)
    assert found is None or all(0 <= topic < 1 << 24 for topic in found)
