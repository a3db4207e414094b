"""What child processes of any start method do with queues; a module of its own, so that they start soon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ipcbus


def echo(questions: ipcbus.Queue[Any], answers: ipcbus.Queue[Any]) -> None:
    """Puts back what it gets, up to None."""
    while (item := questions.get()) is not None:
        answers.put(item)


def put_all(queue: ipcbus.Queue[Any], items: list[Any]) -> None:
    """Puts items and ends at once."""
    for item in items:
        queue.put(item)


def counted_up(queue: ipcbus.Queue[Any], producer: int, items: int) -> None:
    """Puts pairs of a producer and its numbers, of several kinds."""
    for number in range(items):
        pair: Any = (producer, number), b"%d %d" % (producer, number), {(producer, number)}
        queue.put(pair[number % 3])


def taken(queue: ipcbus.Queue[Any], end: object = None) -> list[Any]:
    """Takes items up to an end mark."""
    found = []
    while (item := queue.get()) != end:
        found.append(item)
    return found
