from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ipcbus
from ipcbus.spark.identity import Deduplicator, Identity, identity_of
from tests.kit.bus import GIVE_UP_S
from tests.kit.cases import each_of


def headers(query: str = "q", batch: int = 1, partition: int = 2, row: int = 3) -> list[tuple[str, bytes]]:
    return [
        ("own", b"x"),
        ("ipcbus.query", query.encode()),
        ("ipcbus.batch", str(batch).encode()),
        ("ipcbus.partition", str(partition).encode()),
        ("ipcbus.row", str(row).encode()),
    ]


def test_needs_no_spark() -> None:
    code = "import ipcbus.spark.identity, sys; print([name in sys.modules for name in ('pyspark', 'pyarrow')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[False, False]\n"


def test_identity_is_read_from_headers() -> None:
    assert identity_of(headers()) == Identity("q", 1, 2, 3)


@each_of("number", range(1, 5))
def test_without_one_of_the_headers_there_is_no_identity(number: int) -> None:
    assert identity_of([pair for at, pair in enumerate(headers()) if at != number]) is None


@each_of("value", [b"", b"-1", b"1.0", b"0x1", "\u0661".encode(), b"9" * 19, b" 1"])
def test_what_is_no_number_is_no_identity(value: bytes) -> None:
    for name in ("ipcbus.batch", "ipcbus.partition", "ipcbus.row"):
        assert identity_of([*headers(), (name, value)]) is None


@pytest.mark.parametrize("value", [b"", b"q" * 256])
def test_a_query_has_1_to_255_bytes(value: bytes) -> None:
    assert identity_of([pair for pair in headers() if pair[0] != "ipcbus.query"] + [("ipcbus.query", value)]) is None


def test_doubles_are_dropped_and_events_pass(domain: str) -> None:
    with ipcbus.Context(domain=domain) as context:
        got: list[ipcbus.Message] = []
        fresh = Deduplicator(got.append)
        receiver = context.receiver("t")
        source = context.source("t")
        source.wait_for_receivers(1, GIVE_UP_S)
        for row in (0, 1, 0, 1, 2):
            source.send(b"%d" % row, headers=headers(row=row))
        source.send(b"plain")
        source.send(b"plain", flush=True)
        source.close()
        while not got or got[-1].type != ipcbus.MessageType.EOS:
            message = receiver.receive(GIVE_UP_S)
            assert message is not None
            fresh(message)
    assert [message.data for message in got] == [b"", b"0", b"1", b"2", b"plain", b"plain", b""]
    assert (fresh.delivered, fresh.dropped, fresh.unmarked) == (3, 2, 2)


def test_topics_queries_batches_and_partitions_count_for_themselves() -> None:
    fresh = Deduplicator()
    for topic in ("a", "b"):
        for identity in (
            Identity("q", 1, 0, 0),
            Identity("r", 1, 0, 0),
            Identity("q", 2, 0, 0),
            Identity("q", 1, 1, 0),
        ):
            assert fresh.is_new_row(topic, identity)
            assert not fresh.is_new_row(topic, identity)


@given(st.lists(st.integers(0, 40), max_size=120))
def test_each_row_is_new_once_in_any_order(rows: list[int]) -> None:
    fresh = Deduplicator()
    seen: set[int] = set()
    for row in rows:
        assert fresh.is_new_row("t", Identity("q", 0, 0, row)) == (row not in seen)
        seen.add(row)
    assert (fresh.delivered, fresh.dropped) == (len(seen), len(rows) - len(seen))


def test_what_a_killed_publisher_left_may_come_after_its_successor_has_gone_on() -> None:
    fresh = Deduplicator()
    late = [Identity("q", 0, 0, row) for row in range(5, 10)]
    early = [Identity("q", 0, 0, row) for row in range(9, 20)] + [Identity("q", 1, 0, row) for row in range(5)]
    for row in range(5):
        assert fresh.is_new_row("t", Identity("q", 0, 0, row))
    assert all(fresh.is_new_row("t", identity) for identity in early)
    assert [fresh.is_new_row("t", identity) for identity in late] == [True] * 4 + [False]


def test_of_too_many_batches_the_oldest_is_forgotten_and_its_double_passes() -> None:
    fresh = Deduplicator(batches=2)
    for batch in (0, 1, 2):
        assert fresh.is_new_row("t", Identity("q", batch, 0, 0))
    assert not fresh.is_new_row("t", Identity("q", 2, 0, 0))
    assert not fresh.is_new_row("t", Identity("q", 1, 0, 0))
    assert fresh.is_new_row("t", Identity("q", 0, 0, 0))
    assert not fresh.is_new_row("t", Identity("q", 1, 0, 0)), "an old one pushes out nothing newer"


def test_of_too_many_writers_who_wrote_least_recently_is_forgotten() -> None:
    fresh = Deduplicator(writers=2)
    for query in ("a", "b", "a", "c"):
        fresh.is_new_row("t", Identity(query, 0, 0, 0))
    assert not fresh.is_new_row("t", Identity("a", 0, 0, 0))
    assert fresh.is_new_row("t", Identity("b", 0, 0, 0))


def test_many_gaps_take_no_more_than_so_much_memory() -> None:
    fresh = Deduplicator()
    for row in range(0, 2000, 2):
        assert fresh.is_new_row("t", Identity("q", 0, 0, row))
    ((rows,),) = (batches.values() for batches in fresh._seen.values())
    assert len(rows._starts) == len(rows._ends) == 64
    assert not fresh.is_new_row("t", Identity("q", 0, 0, 1998))
    assert fresh.is_new_row("t", Identity("q", 0, 0, 0))


@pytest.mark.parametrize("limits", [{"batches": 0}, {"writers": 0}])
def test_it_has_to_remember_something(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="1 or more of each"):
        Deduplicator(**limits)
