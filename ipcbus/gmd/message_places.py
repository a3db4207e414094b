"""Which opening of the area sent each message, and at which topic numbers: so a loss there is known to come again."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from ipcbus.gmd import sender_notes
from ipcbus.gmd.sender_notes import OPENING, PLACE, Note
from ipcbus.wire import topic_places
from ipcbus.wire.control_messages import NUMBER_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.gmd.sender_area import SavedMessage, SenderArea


class MessagePlaces:
    """The openings of an area as runs of numbers, and the places of messages whose record has a wrong one.

    The record of a message has the place that the source expected when it saved the message. Another thread may have
    sent on the topic before the message was: then a note has the right place.
    """

    def __init__(self, area: SenderArea, opening: int) -> None:
        """Begins without what earlier openings sent.

        Args:
            area: the area.
            opening: the opening of this source.
        """
        self._area, self.opening = area, opening
        self._begins: list[int] = []
        self._openings: list[int] = []
        self._numbers: list[int] = []  # of messages with another place than in their record
        self._places: list[int] = []

    def begin_sending(self) -> None:
        """Notes that this opening sends the messages to come; a second call does nothing.

        Raises:
            GmdError: the area cannot note it, so that nothing may be saved.
        """
        if not self._openings or self._openings[-1] != self.opening:
            number = self._area.last_number + 1
            self._area.note(sender_notes.encode(Note(OPENING, ranges=((number, self.opening),))))
            self._begin(number, self.opening)

    def correct(self, number: int, place: int) -> None:
        """Notes the place of a message; 0: it is not known.

        Raises:
            GmdError: the area cannot note it.
        """
        self._correct(number, place)
        self._area.note(sender_notes.encode(Note(PLACE, ranges=((number, place),))))

    def run(self, number: int) -> tuple[int, int | None, int]:
        """Returns opening and place of messages; see `sender_area.PlaceRun`."""
        at = bisect_right(self._begins, number)
        end = self._begins[at] - 1 if at < len(self._begins) else NUMBER_MAX
        if not at:
            return 0, 0, end
        other = bisect_left(self._numbers, number)
        if other < len(self._numbers):
            if self._numbers[other] == number:
                return self._openings[at - 1], self._places[other], number
            end = min(end, self._numbers[other] - 1)
        return self._openings[at - 1], None, end

    def topic_numbers(self, message: SavedMessage) -> tuple[int, int] | None:
        """Returns first and last topic number of a message of this opening; None when they are not known."""
        opening, place, _ = self.run(message.number)
        return topic_places.unpack(message.place if place is None else place) if opening == self.opening else None

    def notes(self, first: int) -> Iterator[bytes]:
        """Yields the notes of the messages from a number on."""
        for number, opening in zip(self._begins, self._openings, strict=True):
            yield sender_notes.encode(Note(OPENING, ranges=((number, opening),)))
        for number, place in zip(self._numbers, self._places, strict=True):
            if number >= first:
                yield sender_notes.encode(Note(PLACE, ranges=((number, place),)))

    def replay(self, note: Note) -> None:
        """Takes over a note of the area; those of other kinds are skipped."""
        if note.kind == OPENING:
            self._begin(*note.ranges[0])
        elif note.kind == PLACE:
            self._correct(*note.ranges[0])

    def drop_below(self, number: int) -> None:
        """Forgets the messages below a number."""
        gone = bisect_right(self._begins, number) - 1
        if gone > 0:
            del self._begins[:gone], self._openings[:gone]
        gone = bisect_left(self._numbers, number)
        del self._numbers[:gone], self._places[:gone]

    def _begin(self, number: int, opening: int) -> None:
        while self._begins and self._begins[-1] >= number:  # given again: an older copy was put back
            del self._begins[-1], self._openings[-1]
        self._begins.append(number)
        self._openings.append(opening)
        left = bisect_left(self._numbers, number)
        del self._numbers[left:], self._places[left:]

    def _correct(self, number: int, place: int) -> None:
        at = bisect_left(self._numbers, number)
        self._numbers[at:] = [number]  # the numbers of the calls grow
        self._places[at:] = [place]
