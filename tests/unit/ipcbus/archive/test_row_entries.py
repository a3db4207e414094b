"""Rows as the entries of a retransmission, compared with the same said naively; and rows that lie."""

from __future__ import annotations

from random import Random

import numpy as np

from ipcbus.archive.archive_layout import BATCH_WAIT, CONSTANTS, ROW
from ipcbus.archive.row_entries import RowEntries, RowSearch
from ipcbus.embedding import NUMBER_MAX
from tests.kit.cases import each_of
from tests.kit.older_messages import OlderMessage, entries_of, piece_of

TYPE_BOS = CONSTANTS["TYPE_BOS"]
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
    search = RowSearch(1, 2, 9)
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
    RowSearch(1, 2, 9).note(rows.tobytes(), 0)


def stays(*runs: tuple[int, int, int, int]) -> np.ndarray:
    """Rows of topic 1 and session 2: for each run its type, its first sequence, how many rows, and a send time."""
    rows = np.zeros(sum(run[2] for run in runs), ROW)
    rows["topic"], rows["session"], rows["numbers"], at = 1, 2, 1, 0
    for kind, first, count, sent_ns in runs:
        part = rows[at : at + count]
        part["type"], part["sequence"], part["send_ns"] = kind, first + np.arange(count), sent_ns + np.arange(count)
        at += count
    return rows


def begins(number: int) -> tuple[int, int, int, int]:
    """The row that says: the rows after it have this topic number."""
    return TYPE_BOS, -2 - number, 1, 0


UNNAMED = begins(-1)
"""The same row of a recorder that did not know the number."""


@each_of(
    ("runs", "first", "last", "places", "is_certain"),
    [
        ([begins(8), (0, 0, 5, 10), begins(9), (0, 0, 3, 15)], 0, 2, [(0, 7)], True),
        ([begins(8), (0, 0, 5, 10), begins(9), (0, 5, 3, 15)], 5, 7, [(5, 7)], True),
        ([begins(8), (0, 0, 5, 10), begins(9)], NUMBER_MAX, -1, [], False),
        ([begins(9), (0, 0, 3, 10), begins(8), (0, 0, 5, 15)], 0, 2, [(0, 1)], True),
        # An event of the topic that came before the last messages of the one before.
        ([begins(8), begins(9), begins(8), (0, 0, 5, 10), begins(9), (0, 0, 2, 20)], 0, 1, [(0, 9)], True),
        # A recorder that was restarted.
        ([begins(9), (0, 0, 5, 10), begins(9), (0, 3, 4, 13)], 0, 6, [(0, 1)], True),
        # The row before the first ones was removed, or has no number.
        ([(0, 0, 5, 10), begins(9), (0, 3, 4, 13)], 0, 6, [(0, 0)], False),
        ([(0, 0, 5, 10), begins(9), (0, 0, 3, 15)], 0, 2, [(0, 6)], True),
        ([(0, 0, 5, 10), begins(8), (0, 5, 3, 15)], NUMBER_MAX, -1, [], False),
        ([UNNAMED, (0, 0, 5, 10), UNNAMED, (0, 3, 4, 13)], 0, 6, [(0, 1)], False),
        ([UNNAMED, (0, 0, 5, 10), UNNAMED, (0, 0, 3, 10**9)], 0, 2, [(0, 7)], False),
    ],
)
def test_only_messages_of_the_topic_number_are_found(
    runs: list[tuple[int, int, int, int]], first: int, last: int, places: list[tuple[int, int]], is_certain: bool
) -> None:
    search = RowSearch(1, 2, 9)
    search.note(stays(*runs).tobytes(), 0)
    assert (search.first, search.last, search.places) == (first, last, places)
    assert search.is_certain == is_certain


@each_of(
    ("runs", "is_behind"),
    [([], False), ([begins(8)], True), ([UNNAMED], False), ([begins(8), begins(9)], False), ([(0, 0, 5, 0)], False)],
)
def test_a_log_that_ends_with_another_topic_number_is_behind(
    runs: list[tuple[int, int, int, int]], is_behind: bool
) -> None:
    search = RowSearch(1, 2, 9)
    search.note(stays(*runs).tobytes(), 0)
    assert search.is_behind == is_behind


def left_of(search: RowSearch, rows: np.ndarray, offset: int) -> list[int]:
    """The places of the rows that still have their topic."""
    changed = bytearray(rows.tobytes())
    search.leave_out_others(changed, offset)
    return np.flatnonzero(np.frombuffer(changed, ROW)["topic"]).tolist()


def test_rows_of_other_topic_numbers_are_left_out() -> None:
    search = RowSearch(1, 2, 9)
    search.note(stays(begins(8), (0, 0, 5, 0)).tobytes(), 0)
    assert left_of(search, stays((0, 5, 2, 0), begins(9), (0, 0, 2, 0)), 6) == [2, 3, 4]
    assert left_of(search, stays((0, 2, 2, 0), begins(8), (0, 0, 2, 0)), 11) == [0, 1]
    assert left_of(search, stays((0, 2, 2, 0), begins(9), (0, 4, 1, 0)), 16) == [2, 3]
    others = stays((0, 0, 2, 0))
    others["session"] = 3
    assert left_of(RowSearch(1, 2, 9), others, 0) == [0, 1]


def test_rows_of_others_are_left_out_wherever_reading_begins() -> None:
    rows = stays(begins(8), (0, 0, 3, 0), begins(9), (0, 0, 3, 0), begins(8), (0, 0, 3, 0))
    search = RowSearch(1, 2, 9)
    search.note(rows.tobytes(), 100)
    assert search.places == [(0, 105)]
    for _ in range(2):  # rows whose messages are damaged are read again
        assert left_of(search, rows, 100) == [4, 5, 6, 7]
    search = RowSearch(1, 2, 9)
    rows = stays((0, 0, 3, 0), (0, 0, 3, 10**9))
    search.note(rows.tobytes(), 100)
    assert left_of(search, rows, 100) == [3, 4, 5]


def test_empty_rows_have_nothing() -> None:
    assert RowEntries(b"", b"", 0, 1, 2, 9).begin(0) is None
    assert RowEntries(b"x", b"", 0, 1, 2, 9).take(NUMBER_MAX, 10, 10) == (-1, 0, b"")
    search = RowSearch(1, 2, 9)
    search.note(b"", 0)
    search.leave_out_others(bytearray(), 0)
    assert (search.first, search.last) == (NUMBER_MAX, -1)
