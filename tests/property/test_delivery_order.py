"""The missing numbers against a plain dictionary, and topics that share one bound against two naive ones."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ipcbus.delivery.gaps import Gaps
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.delivery.sink import Sink
from tests.kit.desk import Desk, Seen, seen_of, whole


class GapsMachine(RuleBasedStateMachine):
    """Gaps that open at the end, are filled anywhere, and are given up at the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.gaps = Gaps()
        self.missing: dict[int, tuple[int, int]] = {}  # number to due time, and to what opened it
        self.end = 0

    def run(self) -> list[int]:
        """The numbers of the first gap: those that follow one another and were found missing together."""
        found = [min(self.missing)]
        while self.missing.get(found[-1] + 1) == self.missing[found[0]]:
            found.append(found[-1] + 1)
        return found

    @rule(skip=st.integers(0, 3), length=st.integers(1, 9), due_ns=st.integers(0, 9))
    def open(self, skip: int, length: int, due_ns: int) -> None:
        first = self.end + skip
        self.end = first + length
        self.gaps.open(first, self.end - 1, due_ns)
        self.missing |= dict.fromkeys(range(first, self.end), (due_ns, first))

    @rule(number=st.integers(-1, 80))
    def fill(self, number: int) -> None:
        assert self.gaps.fill(number) == (self.missing.pop(number, None) is not None)

    @precondition(lambda self: self.missing)
    @rule()
    def give_up(self) -> None:
        run = self.run()
        assert self.gaps.give_up() == (run[0], run[-1])
        for number in run:
            del self.missing[number]

    @rule(first=st.integers(0, 60), length=st.integers(0, 12))
    def look(self, first: int, length: int) -> None:
        there = [number for number in range(first, first + length) if number not in self.missing]
        assert self.gaps.cover(first, first + length - 1) == (not there)
        ranges = list(self.gaps.present(first, first + length - 1))
        assert [number for begin, end in ranges for number in range(begin, end + 1)] == there
        assert all(end + 1 < begin for (_, end), (begin, _) in pairwise(ranges))

    @invariant()
    def first_and_how_many(self) -> None:
        beginnings = sum(self.missing.get(n - 1, (0, -1))[1] != opened for n, (_, opened) in self.missing.items())
        assert len(self.gaps) == beginnings
        if self.missing:
            assert (self.gaps.first, self.gaps.due_ns) == (min(self.missing), self.missing[min(self.missing)][0])


TestGaps = GapsMachine.TestCase
TestGaps.settings = settings(max_examples=60, stateful_step_count=40)


arrival = st.tuples(st.sampled_from([1, 2]), st.integers(0, 15))


@settings(max_examples=200)
@given(
    st.lists(arrival, max_size=60),
    st.sampled_from([1, -1]),
    st.integers(1, 6),
    st.sampled_from([0, 2]),
    st.integers(0, 60),
)
def test_topics_that_share_a_bound_keep_to_it_and_account_for_every_number(
    arriving: list[tuple[int, int]], ordered: int, entries_max: int, caching: int, ends: int
) -> None:
    desk = Desk(budget=ReassemblyBudget(entries_max), ordered=ordered, caching=caching, recovery_ns=1000)
    other: list[Seen] = []
    desk.receive(2, Sink(lambda message: other.append(seen_of(message)), 1))
    upto = {1: 0, 2: 0}
    for at, (topic, number) in enumerate(arriving):
        if at == ends:
            desk.session.remove_topic(2)
        desk.feed(whole(number, topic=topic))
        upto[topic] = max(upto[topic], number + 1)
        assert 0 <= desk.budget.entries <= entries_max
        assert desk.budget.entries == desk.tally.order_map_entries
    for controller in desk.session.topics():
        desk.session.end_topic(controller, upto[controller.topic_number])
    assert desk.budget.entries == 0
    for topic, seen in ((1, desk.seen), (2, other)):
        numbers = [int(each[1]) for each in seen if each[0] in ("data", "lost")]
        assert len(numbers) == len(set(numbers))
        if topic == 1 or len(arriving) <= ends:
            assert set(numbers) == set(range(upto[topic]))
        if ordered == 1:
            assert numbers == sorted(numbers)
        came = {number for each, number in arriving if each == topic}
        assert all(each[1] in came for each in seen if each[0] == "data")
