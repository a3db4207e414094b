"""The clients of a session over UDP: how a receiver registers with the source, and how a registration ends.

`TABLE` holds the rules; docs/explanation/reliability.md draws it. The source remembers nothing of a receiver that has
not proven that it receives at its address. The proof is a cookie, a keyed hash of the address, that the source sends
there and the receiver sends back.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ipcbus.reliability.source_filter import ClientFilter
from ipcbus.wire.udp_packets import PAGE_TOPICS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ipcbus.reliability.congestion_paths import Path
    from ipcbus.wire.udp_packets import Ack


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The limits and timeouts of clients; named as the options, times in ns.

    Attributes:
        clients_max: largest number of clients; the source refuses others.
        topics_max: largest number of topics of a client; the source ignores a longer list.
        activity_timeout: the source drops a client that is silent for this time.
        cookie_epoch: a cookie is valid for at least this time, and for at most twice this time.
    """

    clients_max: int = 1024
    topics_max: int = 1024
    activity_timeout: int = 10_000_000_000
    cookie_epoch: int = 30_000_000_000


class State(Enum):
    """The state of an address at the source."""

    UNKNOWN = "the source knows and remembers nothing of the address"
    PROVEN = "the receiver gets what is sent to the address"
    KNOWN = "the source knows the receiver's context and its topics"


class Cause(Enum):
    """What may come from an address."""

    CONNECT = "CONNECT without a valid cookie"
    PROOF = "CONNECT with a valid cookie"
    FULL = "CONNECT with a valid cookie, while the source has clients_max clients"
    ACK = "ACK with the client's cookie"
    NAK = "NAK with the client's cookie"
    UNPROVEN = "ACK or NAK with another cookie"
    LEAVE = "LEAVE with the client's cookie"
    SILENCE = "nothing for the client activity timeout"


class Answer(Enum):
    """The source's answer. No answer is longer than the packet that it answers."""

    NONE = ""
    WELCOME = "SM with the cookie (WELCOME)"
    ADMITTED = "SM with the cookie (WELCOME, ADMITTED)"
    RESET = "RESET"
    REPAIR = "retransmissions or NCFs, to the client that asked, or to its group"


class Step(NamedTuple):
    """The next state and the answer."""

    state: State
    answer: Answer


_ALWAYS = {Cause.CONNECT: Answer.WELCOME, Cause.UNPROVEN: Answer.RESET}

TABLE: Final = {
    **{(state, cause): Step(state, answer) for state in State for cause, answer in _ALWAYS.items()},
    (State.UNKNOWN, Cause.PROOF): Step(State.PROVEN, Answer.ADMITTED),
    (State.UNKNOWN, Cause.FULL): Step(State.UNKNOWN, Answer.RESET),
    (State.PROVEN, Cause.PROOF): Step(State.PROVEN, Answer.ADMITTED),
    (State.KNOWN, Cause.PROOF): Step(State.KNOWN, Answer.ADMITTED),
    (State.PROVEN, Cause.ACK): Step(State.KNOWN, Answer.NONE),
    (State.KNOWN, Cause.ACK): Step(State.KNOWN, Answer.NONE),
    (State.PROVEN, Cause.NAK): Step(State.PROVEN, Answer.REPAIR),
    (State.KNOWN, Cause.NAK): Step(State.KNOWN, Answer.REPAIR),
    (State.PROVEN, Cause.LEAVE): Step(State.UNKNOWN, Answer.NONE),
    (State.KNOWN, Cause.LEAVE): Step(State.UNKNOWN, Answer.NONE),
    (State.PROVEN, Cause.SILENCE): Step(State.UNKNOWN, Answer.NONE),
    (State.KNOWN, Cause.SILENCE): Step(State.UNKNOWN, Answer.NONE),
}
"""What follows from each cause in each state. From an address that is not registered, ACK and NAK count as UNPROVEN
whatever their cookie, and the source ignores LEAVE."""


@dataclass(slots=True)
class Client:
    """One receiving context at its address.

    Attributes:
        address: the address at which it receives.
        cookie: the cookie that proves the address.
        state: PROVEN or KNOWN.
        heard_ns: the time of its last packet, ns of the monotonic clock.
        lead: the number after the highest datagram that it knew of at its last ACK.
        behind: the number of datagrams that the source had sent by then, from the first that the client still needs.
        context_id: the id of its context; set, like the attributes below, once it is KNOWN.
        pid: its process id.
        name: the name of its context.
        topics: the numbers of the topics that it receives.
        revision: the revision of this list.
        starts: for a topic that it receives, the number of the first message that was sent after the source knew that.
        filter: which datagrams are sent to it, in a session with source-side filtering.
        next: the number of the first datagram that it still needs, as far as the source knows.
        limit: the position in the window up to which it has room; -1 before it is admitted.
        evicted: whether it has kept the source waiting for too long: the source does not wait for it until it has
            caught up.
        progress_ns: the time at which it needed a later datagram, or had more room, for the last time.
        begins: whether the address has asked for a cookie since it was registered: its receiver begins another stay.
        is_unsure: whether a stay has begun since it has last said who it is: another process may have the address now.
        path: the congestion control of the way to it; None without.
        place: the number of the next datagram to send to it, while it is behind the others; None while it is not.
        question: the nonce of its last CONNECT, the position in the ring up to which datagrams were published then, and
            the number behind all of these datagrams; -1 before the source has read them.
        unsent: for a topic that it has asked about, the position in the ring up to which datagrams were published then,
            and what was to be said of the topic, until the source has read all of them.
        admitted_ns: the time of the last ADMITTED; 0 after its answer.
        first_round_trip_ns: the time from ADMITTED to its answer; 0 before.
    """

    address: Hashable
    cookie: int
    state: State
    heard_ns: int
    lead: int = 0
    behind: int = 0
    context_id: int = 0
    pid: int = 0
    name: str = ""
    topics: frozenset[int] = frozenset()
    revision: int = -1
    starts: dict[int, int] = field(default_factory=dict)
    filter: ClientFilter = field(default_factory=ClientFilter)
    next: int = 0
    limit: int = -1
    evicted: bool = False
    progress_ns: int = 0
    begins: bool = False
    is_unsure: bool = False
    path: Path | None = None
    place: int | None = None
    question: tuple[int, int, int] = (0, 0, 0)
    unsent: dict[int, tuple[int, tuple[int, int, int]]] = field(default_factory=dict)
    admitted_ns: int = 0
    first_round_trip_ns: int = 0
    _pending_revision: int = -1
    _unknown_topics: bool = False
    _pages: dict[int, tuple[int, ...]] | None = None

    @property
    def sure_context_id(self) -> int:
        """The id of its context; 0 while another process may have its address."""
        return 0 if self.is_unsure else self.context_id

    @property
    def round_trip_ns(self) -> int:
        """The time in which an answer comes, as measured; 0 before the first measurement."""
        return self.path.answer_ns if self.path is not None else self.first_round_trip_ns

    def lead_of(self, lead: int) -> int:
        """Returns the number of the next datagram to send to it: `lead`, unless it is behind."""
        return lead if self.place is None else self.place

    def update(self, ack: Ack, topics_max: int, lead: int) -> bool:
        """Takes identity and topics from an ACK, before datagram `lead`; returns whether that changes anything.

        A list of topics counts when all of its pages have come. A list older than the known one is ignored, and so is
        all that an ACK without a list says of the client.
        """
        if not ack.pages:
            return False
        identity = (ack.context_id, ack.pid, ack.name)
        changed = identity != (self.context_id, self.pid, self.name) or self.state is not State.KNOWN
        if ack.context_id != self.context_id:
            self.topics, self.revision, self._pending_revision, self._pages = frozenset(), -1, -1, None
            self.starts.clear()
            self.filter.open()
        self.context_id, self.pid, self.name = identity
        self.is_unsure = False
        if (
            ack.revision <= self.revision
            or ack.revision < self._pending_revision
            or (ack.pages - 1) * PAGE_TOPICS >= topics_max
        ):
            if ack.revision > self.revision and ack.revision >= self._pending_revision:
                self._unknown_topics = True
                self.filter.open()
            elif ack.revision == self.revision and not self._unknown_topics:
                self.filter.set_topics(self.topics, lead)  # where its stay seemed to begin again
            return changed
        if ack.revision > self._pending_revision or self._pages is None:
            self._pending_revision, self._pages = ack.revision, {}
        if ack.page * PAGE_TOPICS < topics_max:
            self._pages[ack.page] = ack.topics
        if len(self._pages) == ack.pages:
            listed = frozenset(topic for page in self._pages.values() for topic in page)
            self._pages = None
            self._unknown_topics = False
            self.revision = ack.revision
            changed |= listed != self.topics
            self.topics = listed
            self.filter.set_topics(listed, lead)
            self.starts = {topic: start for topic, start in self.starts.items() if topic in listed}
        return changed


class Clients:
    """All clients of one session."""

    def __init__(self, session_id: int, settings: ClientSettings, secret: bytes) -> None:
        """Starts without clients.

        Args:
            session_id: the session's id.
            settings: limits and timeouts.
            secret: the key of the cookies: 16 to 64 bytes that no other process knows.
        """
        self._settings = settings
        self._session = session_id.to_bytes(4, "big")
        self._secret = secret
        # In the order of their last packets, the oldest first.
        self._clients: dict[Hashable, Client] = {}
        self.addresses: tuple[Hashable, ...] = ()
        """The addresses of all registered clients."""
        self.changes = 0
        """Grows when a client comes, goes, or receives other topics."""

    @property
    def known(self) -> tuple[Client, ...]:
        """The clients whose context is known; any thread may ask while clients come and go."""
        return self._in_state(State.KNOWN)

    @property
    def newcomers(self) -> tuple[Client, ...]:
        """The clients that have yet to say who they are; any thread may ask while clients come and go."""
        return self._in_state(State.PROVEN)

    def _in_state(self, state: State) -> tuple[Client, ...]:
        return tuple(client for client in tuple(self._clients.values()) if client.state is state)

    @property
    def registered(self) -> Iterable[Client]:
        """All clients."""
        return self._clients.values()

    def get(self, address: Hashable) -> Client | None:
        """Returns the client that is registered at an address."""
        return self._clients.get(address)

    def cookie(self, address: Hashable, now_ns: int, back: int = 0) -> int:
        """Returns the cookie for an address in this epoch, or `back` epochs ago; `repr(address)` has to be unique."""
        epoch = now_ns // self._settings.cookie_epoch - back
        text = f"{epoch} {address!r}".encode()
        digest = hashlib.blake2b(self._session + text, digest_size=8, key=self._secret).digest()
        return int.from_bytes(digest, "big") or 1

    def connect(self, address: Hashable, cookie: int, now_ns: int) -> tuple[Answer, int]:
        """Takes a CONNECT; returns the answer, and the cookie to send with it."""
        client = self._clients.get(address)
        new_cookie = self.cookie(address, now_ns)
        state = client.state if client is not None else State.UNKNOWN
        valid = (client is not None and cookie == client.cookie) or (
            cookie != 0 and cookie in (new_cookie, self.cookie(address, now_ns, 1))
        )
        if not valid:
            if client is not None:
                client.begins = True
            return TABLE[state, Cause.CONNECT].answer, new_cookie
        if client is None and len(self._clients) >= self._settings.clients_max:
            return TABLE[state, Cause.FULL].answer, cookie
        step = TABLE[state, Cause.PROOF]
        if client is None:
            self._clients[address] = Client(address, cookie, step.state, now_ns)
            self._membership_changed()
        else:
            client.cookie = cookie
            if client.begins:  # another stay: it does not get what an earlier one got
                client.begins, client.is_unsure = False, True
                client.starts.clear()
                client.filter = ClientFilter()
            self._note_life(client, now_ns)
        return step.answer, cookie

    def authenticate(self, address: Hashable, cookie: int, now_ns: int) -> Client | None:
        """Returns the client at this address if the cookie is its own, else None; notes a sign of life."""
        client = self._clients.get(address)
        if client is None or client.cookie != cookie:
            return None
        self._note_life(client, now_ns)
        return client

    def ack(self, client: Client, ack: Ack, lead: int = 0) -> None:
        """Takes an ACK of a registered client; `lead` is the number of the next datagram."""
        if client.admitted_ns:
            client.admitted_ns, client.first_round_trip_ns = 0, client.heard_ns - client.admitted_ns
        client.lead, client.behind = ack.lead, max(0, lead - ack.next)
        changed = client.update(ack, self._settings.topics_max, lead)
        if ack.pages:
            client.state = TABLE[client.state, Cause.ACK].state
        self.changes += changed

    def leave(self, client: Client) -> None:
        """Drops a client that leaves."""
        self._drop(client, Cause.LEAVE)

    def forget(self, client: Client) -> None:
        """Drops a client whose context has died."""
        self._drop(client, Cause.SILENCE)

    def turn(self, now_ns: int) -> int:
        """Drops clients that are silent for the activity timeout; returns how many."""
        dropped = 0
        while self._clients:
            oldest = next(iter(self._clients.values()))
            if now_ns - oldest.heard_ns < self._settings.activity_timeout:
                break
            self._drop(oldest, Cause.SILENCE)
            dropped += 1
        return dropped

    @property
    def next_ns(self) -> int | None:
        """The time at which to call `turn`; None without clients."""
        if not self._clients:
            return None
        return next(iter(self._clients.values())).heard_ns + self._settings.activity_timeout

    def _drop(self, client: Client, cause: Cause) -> None:
        client.state = TABLE[client.state, cause].state
        del self._clients[client.address]
        self._membership_changed()

    def _note_life(self, client: Client, now_ns: int) -> None:
        client.heard_ns = now_ns
        self._clients[client.address] = self._clients.pop(client.address)

    def _membership_changed(self) -> None:
        self.addresses = tuple(self._clients)
        self.changes += 1
