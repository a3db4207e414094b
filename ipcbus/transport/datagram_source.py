"""What brings the datagrams of a joined session: its ring, or packets that are put into one of this context's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus.transport.ring.topic_lines import TopicLines
    from ringbuf.memory import Mapping
    from ringbuf.ring import RingReader


class DatagramSource(Protocol):
    """One session's, at one receiving context."""

    recovery_ns: int
    """How long it tries to bring what is missing."""
    owner_pid: int
    """Process that sends; 0 when that is not known."""
    begun: bool
    """Whether something had been sent before it was joined."""
    layer: str
    """`ring`, or the transport over which it comes."""
    reason: str
    """Why it is not the session's ring; empty where it is, or where there is none."""

    @property
    def lines(self) -> TopicLines | None:
        """What the source says of its topics in its ring; None where this process cannot map the ring."""

    @property
    def reader(self) -> RingReader:
        """Of the ring that the session's records are read from."""

    @property
    def control(self) -> Mapping:
        """The control block with this context's slot."""

    @property
    def index(self) -> int:
        """This context's slot."""

    def join_topic(self, number: int, begins: Callable[[int], object] | None = None) -> bool:
        """This context receives a topic from now on; False when the topic is not there (any more).

        Args:
            number: the topic's.
            begins: where `floor` does not know, it is told the same before anything of the topic can be read.
        """

    def leave_topic(self, number: int) -> None:
        """It does not any more."""

    def floor(self, number: int) -> int | None:
        """Returns the number of the topic's first message that is sent after now; None when that is not known."""

    def published(self, number: int) -> int:
        """Messages of a topic with numbers below this one are published; 0 when that is not known."""

    def at_end(self, number: int) -> int:
        """The same of a session or topic that is over, from all that can be known here."""

    counted: bool
    """Whether each datagram says how many messages are in it."""

    def numbers_end(self, number: int) -> int:
        """Returns the messages of a topic that are sent by now have numbers below this one, as far as is known."""

    def missed(self) -> int:
        """At most so many messages were lost before they came here; never falls."""

    def came_ns(self) -> int:
        """When the newest datagram came, ns of the monotonic clock; 0 where nothing that is missing comes later."""

    def mark(self) -> Callable[[], bool]:
        """Says later whether everything that is published now has been read from the ring, or will not come."""

    @property
    def catches_up(self) -> bool:
        """Whether it is behind its source, and gets what was published in order."""

    def may_lose(self) -> bool:
        """Returns whether messages may be lost without others following them that show it."""

    def withdrawn(self, *, died: bool = False) -> None:
        """Nobody offers the session any more, or the process that did so died."""

    @property
    def for_good(self) -> bool:
        """Whether a session that is over here cannot be joined again."""

    def signs(self) -> tuple[int, int]:
        """Numbers of which one changes with every sign of life of the source."""

    def owner_lives(self) -> bool:
        """Returns whether the source's process is there, as far as can be told."""

    @property
    def closed(self) -> bool:
        """Whether the source has ended the session, read to its end or not."""

    def counters(self) -> dict[str, int]:
        """What it counts itself."""

    def leave(self) -> bool:
        """Leaves the session; True when the source waits for an event."""

    def abandon(self) -> None:
        """Closes descriptors only; for a child after a fork."""
