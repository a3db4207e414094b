"""Rows as the entries of a retransmission, compared with the same said naively; and rows that lie."""

from __future__ import annotations

from random import Random

import numpy as np

from ipcbus.archive.archive_layout import BATCH_WAIT, ROW
from ipcbus.archive.row_entries import RowEntries, RowSearch
from ipcbus.embedding import NUMBER_MAX
from tests.kit.cases import each_of
from tests.kit.older_messages import OlderMessage, entries_of, piece_of

START = 1000
"""The position of the first message in its segment."""


def rows_of(messages: list[OlderMessage], *, others: Random | None = None) -> tuple[np.ndarray, bytes]:
    """The rows of topic 1 and session 2, and their bytes; `others`: with rows of other topics between them."""
    rows, data = [], b""

    def add(topic: int, kind: int, last: int, count: int, headers: int, flags: int, value: bytes, send_ns: int) -> None:
        nonlocal data
        length = len(value) - headers
        rows.append((START + len(data), length, topic, 2, count, headers, flags, kind, last, send_ns, 0))
        data += value

    for first, last, flags, has_headers, value, send_ns in messages:
        if others is not None and others.random() < 0.5:
            topic, kind = others.choice([(3, 0), (1, 4), (1, 1)])
            add(topic, kind, 5, 1, 0, 0, b"other", 0)
        add(1, 0, last, last - first + 1, 3 * has_headers, flags, value, send_ns)
    return np.array(rows, ROW), data


def entries(rows: np.ndarray, data: bytes) -> RowEntries:
    """Of topic 1 and session 2 of the log; topic 9 of the session."""
    return RowEntries(rows.tobytes(), data, START, 1, 2, 9)


@each_of("seed", range(20))
def test_pieces_are_those_of_the_naive_form(seed: int) -> None:
    random = Random(seed)
    messages, number = [], random.randint(0, 5)
    for _ in range(50):
        size = random.choice([9, 64, 200])
        count = random.choice([1, 1, 1, random.randint(2, 3)])
        value = random.randbytes(size)
        flags = random.randrange(256)
        messages.append(
            OlderMessage(number, number + count - 1, flags, random.random() < 0.3, value, random.getrandbits(60))
        )
        number += count + random.choice([0, 0, 0, 0, 2])
    found = entries(*rows_of(messages, others=random))
    first = 0
    while (begin := found.begin(first)) is not None:
        most, last = random.choice([1, 3, 100]), random.choice([NUMBER_MAX, begin + random.randint(0, 20)])
        expected = piece_of(9, messages, begin, last, most)
        assert found.take(last, most, 1 << 20) == (expected.last, expected.messages, expected.entries)
        first = expected.last + 1 if expected.messages else begin + 1
    assert not found.contradicts
    assert first >= messages[-1].first


@each_of(("length", "count"), [(10, 4), (9, 3), (100_000, 13), (2, 2)])
def test_a_message_in_fragments_has_as_many_again(length: int, count: int) -> None:
    message = OlderMessage(5, 4 + count, 0, False, bytes(i % 251 for i in range(length)), 7)
    found = entries(*rows_of([message]))
    assert found.begin(0) == 5
    assert found.take(NUMBER_MAX, 10, 1) == (4 + count, 1, entries_of(9, [message]))


def test_more_fragments_than_a_message_can_have_end_it() -> None:
    found = entries(*rows_of([OlderMessage(0, 6, 0, False, bytes(9), 7)]))
    assert found.begin(0) is None
    assert found.contradicts


def test_bytes_limit_a_piece_but_not_a_message() -> None:
    messages = [OlderMessage(number, number, 0, False, bytes(100), 7) for number in range(10)]
    found = entries(*rows_of(messages))
    found.begin(0)
    assert found.take(NUMBER_MAX, 100, 300)[:2] == (1, 2)
    assert found.take(NUMBER_MAX, 100, 1)[:2] == (2, 1)


def test_a_batch_wait_is_no_number() -> None:
    rows, data = rows_of([OlderMessage(5, 5, 0, False, b"abc", 7)])
    rows["numbers"] = BATCH_WAIT + 1000
    assert entries(rows, data).begin(0) == 5
    search = RowSearch(1, 2)
    search.note(rows.tobytes(), 3)
    assert (search.first, search.last, search.places) == (5, 5, [(5, 3)])


@each_of(
    ("field", "value"),
    [
        *[("position", START + 4), ("position", 0), ("length", 1 << 31), ("length", 4), ("headers", 65535)],
        *[
            ("numbers", 0),
            ("numbers", 1 << 30),
            ("sequence", -1),
            ("sequence", -(1 << 63)),
            ("sequence", (1 << 63) - 1),
        ],
    ],
)
def test_rows_that_lie_end_it(field: str, value: int) -> None:
    rows, data = rows_of([OlderMessage(number, number, 0, False, b"abc", 7) for number in (5, 6, 7)])
    rows[field][2] = value
    found = entries(rows, data)
    assert found.begin(0) == 5
    assert found.take(NUMBER_MAX, 100, 1 << 20)[:2] == (6, 2)
    assert found.begin(0) is None
    assert found.contradicts
    RowSearch(1, 2).note(rows.tobytes(), 0)


def test_empty_rows_have_nothing() -> None:
    assert RowEntries(b"", b"", 0, 1, 2, 9).begin(0) is None
    assert RowEntries(b"x", b"", 0, 1, 2, 9).take(NUMBER_MAX, 10, 10) == (-1, 0, b"")
    search = RowSearch(1, 2)
    search.note(b"", 0)
    assert (search.first, search.last) == (NUMBER_MAX, -1)
