"""The interface of what brings the datagrams of a joined session: its ring, or UDP through a ring of this context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ipcbus.delivery.slow_path import Upstream

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ipcbus.transport.ring.topic_lines import TopicLines
    from ringbuf.ring import RingReader


class DatagramSource(Upstream, Protocol):
    """What brings the datagrams of one session to one receiving context."""

    recovery_ns: int
    """How long it tries to recover a missing datagram, in ns; 0 when it never does."""
    owner_pid: int
    """The process id of the source; 0 when it is not known."""
    begun: bool
    """Whether the source had sent a datagram before this context joined."""
    layer: str
    """`ring`, or the name of the transport over UDP."""
    reason: str
    """Why the session is not read from its ring; empty where it is, or where the session has no ring."""

    @property
    def lines(self) -> TopicLines | None:
        """What the source says of its topics in its ring; None where this process cannot map the ring."""

    def take_lines(self, lines: TopicLines | None) -> None:
        """Takes what an earlier stay in the session could read of the source's ring, if this one cannot map it."""

    @property
    def reader(self) -> RingReader:
        """The reader of the ring that the session's records are read from."""

    @property
    def index(self) -> int:
        """The number of this context's slot."""

    def join_topic(self, number: int, begins: Callable[[int], object] | None = None) -> bool:
        """Begins to receive a topic; returns False when the session does not carry the topic.

        Args:
            number: the number of the topic.
            begins: where `floor` returns None, called with the number of the first message before any message of the
                topic can be read.
        """

    def leave_topic(self, number: int) -> None:
        """Stops receiving a topic."""

    def floor(self, number: int) -> int | None:
        """Returns the number of the first message of a topic that is sent from now on; None when it is not known."""

    def precedes(self, number: int, sequence: int) -> bool:
        """Returns whether a message is older than what this context gets of a topic, and later ones may be left out.

        Then it must not be delivered: what its source has left out behind it would count as lost.
        """

    def receives(self, number: int) -> bool:
        """Returns whether every message of a topic that is sent from now on comes, or is reported lost."""

    @property
    def refusal(self) -> str:
        """Why its source does not register this context; empty otherwise."""

    def published(self, number: int) -> int:
        """Returns a number below which all messages of a topic are published; 0 when it is not known."""

    def at_end(self, number: int) -> int:
        """Returns the number of `published` for a session or topic that is over, from all that this host knows."""

    def may_say_more(self) -> bool:
        """Returns whether, when the memory is cut short, the source may still say how far its topics went."""

    def request_infos(self, silent: Collection[int], now_ns: int) -> int | None:
        """Asks the source, if that is due, for the next numbers of topics of which nothing has come.

        Args:
            silent: these topics.
            now_ns: the time.

        Returns:
            The time at which to call again; None where nothing has to be asked.
        """

    def mark(self) -> Callable[[], bool]:
        """Returns a function that says whether all that is published now has been read from the ring, or was lost."""

    def settling(self) -> Callable[[int], bool | None]:
        """Returns a function about the datagrams that are known now, which takes the time.

        It returns True when all of them have been read, or are known not to come; False while some are on their way;
        None when it cannot tell.
        """

    @property
    def is_in_order(self) -> bool:
        """Whether all that was sent before the datagram that is read now has been read, or will not come."""

    @property
    def catches_up(self) -> bool:
        """Whether it is behind its source and gets datagrams in order, in small steps."""

    @property
    def stopped_at(self) -> int | None:
        """The number of the datagram at which a later stay in the session begins; None for the next one."""

    def may_lose(self) -> bool:
        """Returns whether messages may be lost with no later message to show the gap."""

    def note_withdrawn(self, *, died: bool = False) -> None:
        """Takes note that no registry offers the session any more, or that the process that did so has died."""

    @property
    def is_withdrawn(self) -> bool:
        """Whether the source may have ended, or died, without a lock that shows it."""

    @property
    def for_good(self) -> bool:
        """Whether a session that is over cannot be joined again."""

    def life_signs(self) -> tuple[int, int]:
        """Returns two numbers; one of them changes with each sign of life of the source."""

    def owner_lock(self) -> tuple[int, int] | None:
        """Returns the descriptor and the byte of the lock that the source holds while it lives; None without a lock."""

    def owner_lives(self) -> bool:
        """Returns whether the source's process lives, as far as is known."""

    @property
    def closed(self) -> bool:
        """Whether the source has ended the session; records may still wait in the ring."""

    def counters(self) -> dict[str, int]:
        """Returns the counters that it has beside those of the slot."""

    def leave(self) -> bool:
        """Leaves the session; returns whether the source waits for an event."""

    def abandon(self) -> None:
        """Closes descriptors only; for the child process after a fork."""
