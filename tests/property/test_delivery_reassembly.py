"""Delivery against its naive description: what comes out of any arrival of any stream, in every mode, step by step."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from tests.kit.datagrams import Item, compose, fragment, info
from tests.kit.desk import Desk, Seen
from tests.kit.naive import Naive, Piece, Whole


@dataclass(frozen=True)
class Stream:
    """What a source sent: messages and fragments by number."""

    items: tuple[Whole | Piece, ...]

    def item(self, number: int) -> Item:
        """As it stands in a datagram."""
        sent = self.items[number]
        if isinstance(sent, Whole):
            return Item(1, number, sent.payload)
        return fragment(number, sent.first, sent.offset, sent.total, sent.data)


PIECE = 8


def pieces(first: int, payload: bytes, until: int) -> list[Piece]:
    """The first `until` fragments of a message."""
    count = -(-len(payload) // PIECE)
    return [
        Piece(first, first + count - 1, at, len(payload), PIECE, payload[at : at + PIECE])
        for at in range(0, len(payload), PIECE)
    ][:until]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Whole messages, fragmented ones, some given up half-way, some fragments that contradict themselves."""
    items: list[Whole | Piece] = []
    for kind in draw(
        st.lists(st.sampled_from(["whole", "pieces", "pieces", "given up", "bad"]), min_size=1, max_size=12)
    ):
        number = len(items)
        if kind == "whole":
            items.append(Whole(b"%d" % number))
        elif kind == "bad":
            items.append(Piece(number, number, 0, 5, 0, b"", bad=True))
        else:
            count = draw(st.integers(2, 6))
            length = draw(st.integers((count - 1) * PIECE + 1, count * PIECE))
            payload = bytes((number * 31 + i) % 251 for i in range(length))
            items += pieces(number, payload, count if kind == "pieces" else draw(st.integers(1, count - 1)))
    return Stream(tuple(items))


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[Stream, list[tuple[str, int]]]:
    """A stream and what of it comes when: ("item", number), ("info", next), ("check", ns) or ("time", ns)."""
    stream = draw(streams())
    size = len(stream.items)
    # Almost in order, with losses, duplicates and stragglers: numbers sorted by when they come.
    steps: list[tuple[float, tuple[str, int]]] = []
    for number in range(size):
        copies = range(draw(st.sampled_from([1, 1, 1, 1, 0, 2])))
        steps += [(number + draw(st.sampled_from([0, 0, 0, 0.1, 1.5, 3.5, 9.5])), ("item", number)) for _ in copies]
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["info", "check", "time"]))
        at = draw(st.integers(0, size + 3))
        steps.append((at - 0.5, (kind, min(at, size) if kind == "info" else draw(st.sampled_from([1, 5, 20])))))
    return stream, [step for _, step in sorted(steps, key=lambda each: each[0])]


def numbers_of(seen: Seen) -> list[tuple[object, ...]]:
    """What was seen as the naive description says it: each lost number by itself."""
    if seen[0] == "burst":
        return [("lost", number) for number in range(int(seen[1]), int(seen[2]) + 1)]
    return [] if seen[0] in ("BOS", "EOS") else [seen]


def accounted(events: list[tuple[object, ...]]) -> list[int]:
    """Every number that is in a message or reported, as often as it is."""
    found: list[int] = []
    for each in events:
        found += range(int(str(each[1])), int(str(each[2] if each[0] == "data" else each[1])) + 1)
    return found


tiny = st.fixed_dictionaries(
    {
        "ordered": st.sampled_from([1, -1, 0]),
        "recovery_ns": st.sampled_from([0, 5, 10, 1000]),
        "burst_loss": st.sampled_from([2, 3, 1024]),
        "caching": st.sampled_from([0, 1, 3, 10_000]),
    }
)


def each_number_once(desk: Desk, size: int, floor: int | None, ordered: int) -> None:
    """Every number from the beginning on was delivered or reported lost, once, in order where that was asked for."""
    everything = [each for seen in desk.seen for each in numbers_of(seen)]
    found = accounted(everything)
    assert len(found) == len(set(found))
    begun = size - len(found)
    assert sorted(found) == list(range(begun, size))
    if floor == 0:
        assert begun == 0
    if ordered == 1:
        assert found == sorted(found)


def is_as_the_naive_description_says(
    arriving: tuple[Stream, list[tuple[str, int]]],
    rules: dict[str, int],
    entries_max: int,
    bytes_max: int,
    floor: int | None,
) -> None:
    stream, steps = arriving
    budget = ReassemblyBudget(entries_max, bytes_max)
    desk = Desk(floor=floor, budget=budget, loss_check_ns=1, **rules)
    naive = Naive(floor=floor, entries_max=entries_max, bytes_max=bytes_max, loss_check_ns=1, **rules)
    was_lost: set[int] = set()
    checked = naive_checked = 0

    def compare() -> None:
        nonlocal checked, naive_checked
        got = [each for seen in desk.seen[checked:] for each in numbers_of(seen)]
        meant = naive.events[naive_checked:]
        # In order the whole stream is determined; else only what comes at one time.
        assert got == meant if rules["ordered"] == 1 else sorted(map(repr, got)) == sorted(map(repr, meant))
        checked, naive_checked = len(desk.seen), len(naive.events)
        was_lost.update(int(str(number)) for kind, number, *_ in got if kind == "lost")
        assert (budget.entries, budget.bytes) == (naive.entries, naive.bytes)
        assert not 0 < entries_max < budget.entries
        assert budget.bytes <= bytes_max + 512
        assert desk.tally.order_map_entries == budget.entries

    for kind, value in steps:
        if kind == "item":
            desk.demux.feed(compose(stream.item(value)), 0, desk.now_ns)
            naive.arrives(value, stream.items[value], desk.now_ns)
        elif kind == "info":
            desk.demux.feed(compose(info(value)), 0, desk.now_ns)
            naive.note_next_sequence(value, desk.now_ns)
        else:
            desk.now_ns += value
            if kind == "check":
                desk.session.check(desk.session.due(desk.now_ns), desk.now_ns)
                naive.check(desk.now_ns)
        compare()
    desk.end(len(stream.items))
    naive.finish(len(stream.items))
    compare()
    tally = desk.tally
    assert (tally.duplicates, tally.malformed, tally.reassembly_refused) == (
        naive.duplicates,
        naive.malformed,
        naive.refused,
    )
    assert (budget.entries, budget.bytes) == (0, 0)
    assert (tally.order_map_entries, tally.reassembly_bytes) == (0, 0)
    each_number_once(desk, len(stream.items), floor, rules["ordered"])
    event(f"mode {rules['ordered']}, something lost: {bool(was_lost)}")


CASES = given(
    arrivals(), tiny, st.sampled_from([0, 1, 2, 5]), st.sampled_from([20, 600, 2**31]), st.sampled_from([None, 0, 2])
)


@pytest.mark.parametrize("examples", [100, pytest.param(1000, marks=pytest.mark.long)])
def test_delivery_is_as_the_naive_description_says(examples: int) -> None:
    settings(max_examples=examples)(CASES(is_as_the_naive_description_says))()
