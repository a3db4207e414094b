"""A recording beside a source: where the next missing message comes from, and when a number is lost."""

from __future__ import annotations

from ipcbus.recovery.older_messages import OlderPiece, PastMerger, Piece, first_number
from ipcbus.wire.control_messages import NUMBER_MAX
from tests.kit.cases import each_of
from tests.kit.older_messages import OlderMessage, entries_of, piece_of
from tests.kit.retaining import kept

TIMEOUT = 100


def message(number: int, data: bytes = b"x", *, last: int | None = None, flags: int = 0) -> OlderMessage:
    """A recorded message."""
    return OlderMessage(number, number if last is None else last, flags, False, data, 7)


class Recording:
    """Messages by number, which come two at a time."""

    def __init__(self, *messages: OlderMessage, grows: bool = False) -> None:
        self.messages, self.grows = list(messages), grows
        self.searching = False
        self.faults = 0

    def begin(self, next_sequence: int, wanted: int) -> int | None:
        """The first number."""
        if self.searching:
            return None
        return min((each.first for each in self.messages if each.last < next_sequence), default=NUMBER_MAX)

    def read(self, first: int, last: int) -> OlderPiece | None:
        """The next messages."""
        return None if self.searching else piece_of(1, self.messages, first, last, 2, grows=self.grows)


def merger(recording: Recording) -> PastMerger:
    """Of a recording."""
    return PastMerger(recording, TIMEOUT)


def numbers(piece: Piece | None) -> tuple[int, int, list[int]]:
    """What a piece settles, and the numbers that it brings."""
    assert piece is not None
    return piece.first, piece.last, [each.sequence for each in kept(piece.entries)]


def test_the_first_number_of_entries() -> None:
    assert first_number(memoryview(entries_of(1, [message(8)]))) == 8
    assert first_number(memoryview(b"")) is None


@each_of(("most", "first"), [(None, 3), (100, 3), (15, 5), (10, 10), (4, 10)])
def test_history_begins_with_what_is_recorded_or_kept(most: int | None, first: int) -> None:
    past = merger(Recording(message(3), message(4)))
    assert past.begin(10, 20, 20, most) == first
    assert past.gone_below == 10


def test_a_recording_of_another_source_is_not_used() -> None:
    assert merger(Recording(message(30))).begin(10, 20, 20, None) == 10


def test_while_it_is_searched_nothing_is_asked_of_the_source() -> None:
    recording = Recording(message(3))
    past = merger(recording)
    recording.searching = True
    assert past.begin(10, 20, 20, None) is None
    assert past.reading
    recording.searching = False
    assert past.begin(10, 20, 20, None) == 3
    recording.searching = True
    assert past.take(3, 19, 0) is None
    assert past.waits


def test_the_recording_first_then_the_source() -> None:
    past = merger(Recording(*map(message, (3, 4, 5))))
    past.begin(6, 20, 20, None)
    assert numbers(past.take(3, 19, 0)) == (3, 4, [3, 4])
    assert past.recorded_from == 3  # so the source is not asked yet
    assert numbers(past.take(5, 19, 0)) == (5, 5, [5])
    assert past.reading  # so it is asked again at once
    assert past.take(6, 19, 0) is None
    assert (past.waits, past.recorded_from, past.gone_below, past.messages) == (False, NUMBER_MAX, 6, 3)


def test_a_hole_that_the_source_may_fill_is_asked_for() -> None:
    past = merger(Recording(message(3), message(9)))
    past.begin(5, 20, 20, None)
    assert numbers(past.take(3, 19, 0)) == (3, 3, [3])
    assert numbers(past.take(4, 19, 0)) == (4, 4, [])  # neither has it
    assert past.take(5, 19, 0) is None
    assert (past.gone_below, past.recorded_from) == (5, 9)
    past.gone(7)
    assert numbers(past.take(5, 19, 0)) == (5, 6, [])


def test_what_is_received_already_is_left_out() -> None:
    past = merger(Recording(message(3), message(4)))
    past.begin(10, 20, 20, None)
    assert numbers(past.take(3, 3, 0)) == (3, 3, [3])


def test_a_message_that_is_missing_in_part_is_left_to_the_source() -> None:
    past = merger(Recording(message(3, b"abcd", last=6)))
    past.begin(0, 20, 20, None)
    assert past.take(3, 4, 0) is None
    assert past.recorded_from == 5  # the source is asked for its fragments
    past.gone(20)
    assert numbers(past.take(3, 4, 0)) == (3, 4, [])


def test_a_recording_that_grows_is_waited_for() -> None:
    recording = Recording(message(3), grows=True)
    past = merger(recording)
    past.begin(10, 20, 20, None)
    past.take(3, 19, 0)
    assert past.take(4, 19, 50) is None
    assert past.waits
    recording.messages.append(message(4))
    assert numbers(past.take(4, 19, 60)) == (4, 4, [4])
    assert past.take(5, 19, 70) is None
    assert past.take(5, 19, 70 + TIMEOUT - 1) is None
    assert numbers(past.take(5, 19, 70 + TIMEOUT)) == (5, 9, [])
    assert not past.waits


def test_with_nothing_missing_it_waits_for_nothing() -> None:
    past = merger(Recording(message(3), grows=True))
    past.begin(10, 20, 20, None)
    assert past.take(5, 19, 0) is None
    assert past.rest() is None
    assert not past.waits
