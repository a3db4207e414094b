"""The topics and logs that a reader selected."""

from __future__ import annotations

from ipcbus.spark.topic_selection import TopicSelection
from tests.kit.cases import each_of

ALL = TopicSelection()
NAMES = TopicSelection(names=("a", "b"))
PATTERN = TopicSelection(pattern="a.*")
ASSIGNED = TopicSelection(assigned={"a": (0, 1), "b": (1,)})


@each_of(
    ("selection", "partition", "topics"),
    [(NAMES, 0, "ab"), (PATTERN, 0, ["a", "ax"]), (ASSIGNED, 0, "a"), (ASSIGNED, 1, "ab"), (ASSIGNED, 2, "")],
)
def test_the_selected_topics_of_a_log(selection: TopicSelection, partition: int, topics: str) -> None:
    wants = selection.wants(partition)
    assert wants is not None
    assert [topic for topic in ("a", "ax", "b", "xa") if wants(topic)] == list(topics)


def test_without_a_selection_all_is_read() -> None:
    assert ALL.wants(0) is None
    assert ALL.known(0) is None
    assert ALL.wants_log(7)
    assert ALL.unknown({0: {"a"}}) == []


def test_only_assigned_logs_are_read() -> None:
    assert [ASSIGNED.wants_log(partition) for partition in range(3)] == [True, True, False]
    assert NAMES.wants_log(7)


@each_of(
    ("selection", "unknown"),
    [
        (NAMES, ["'b'"]),
        (PATTERN, []),
        (TopicSelection(pattern="q"), ["no topic matches subscribePattern 'q'"]),
        (ASSIGNED, ["partition 1 has no topic 'a'", "partition 1 has no topic 'b'"]),
    ],
)
def test_topics_that_no_log_has_are_named(selection: TopicSelection, unknown: list[str]) -> None:
    found = selection.unknown({0: {"a"}, 1: set()})
    assert len(found) == len(unknown)
    assert all(part in text for part, text in zip(unknown, found, strict=True))
