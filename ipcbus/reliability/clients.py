"""Who receives a session: the source's clients, how one becomes one, and how it ceases to be.

What happens stands in `TABLE`; docs/explanation/reliability.md draws it. Nothing is remembered of who has not proven
that it receives at its address: the proof is a cookie, a keyed hash of that address, which comes back to the source.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ipcbus.wire.udp_packets import PAGE_TOPICS

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ipcbus.wire.udp_packets import Ack


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How a source keeps its clients; named as the options, times in ns.

    Attributes:
        clients_max: most of them; others are refused.
        topics_max: most topics that one may receive; a longer list is not taken.
        activity_timeout: one that is silent for so long is dropped.
        cookie_epoch: a cookie can be used for so long at least, and for twice as long at most.
    """

    clients_max: int = 1024
    topics_max: int = 1024
    activity_timeout: int = 10_000_000_000
    cookie_epoch: int = 30_000_000_000


class State(Enum):
    """What a source knows of an address."""

    UNKNOWN = "nothing; nothing is remembered either"
    PROVEN = "it receives there what is sent there"
    KNOWN = "who it is, and which topics it receives"


class Cause(Enum):
    """What may come from it."""

    CONNECT = "CONNECT without a valid cookie"
    PROOF = "CONNECT with it"
    FULL = "the same, while there is no room"
    ACK = "ACK with its cookie"
    NAK = "NAK with its cookie"
    UNPROVEN = "ACK or NAK with another one"
    LEAVE = "LEAVE with its cookie"
    SILENCE = "nothing for the client activity timeout"


class Answer(Enum):
    """What it is answered. No answer is longer than what it answers."""

    NONE = ""
    WELCOME = "SM with the cookie (WELCOME)"
    ADMITTED = "SM with the cookie (WELCOME, ADMITTED)"
    RESET = "RESET"
    REPAIR = "retransmissions or NCFs, to all"


class Step(NamedTuple):
    """What follows."""

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
"""Each state with each cause that it can meet. From an address that is not registered, ACK and NAK are unproven
whatever their cookie, and LEAVE is nothing."""


@dataclass(slots=True)
class Client:
    """One receiving context at its address.

    Attributes:
        address: where it receives.
        cookie: its proof.
        state: PROVEN or KNOWN.
        heard_ns: when it gave a sign of life last.
        lead: the number after the highest that it knew of when it said so last.
        behind: how many datagrams less than were sent that was.
        context_id: of its context; this and the following once it is KNOWN.
        pid: of its process.
        name: of its context.
        topics: numbers of the topics that it receives.
        revision: of this list.
        starts: of topics that it receives, the number of the first message that was sent after that was known.
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
    _coming: int = -1
    _pages: dict[int, tuple[int, ...]] | None = None

    def listen(self, ack: Ack, topics_max: int) -> bool:
        """Takes what an ACK says of who and what; says whether that changes anything.

        A list counts when all of its pages have come, and one that is older than what is known does not.
        """
        who = (ack.context_id, ack.pid, ack.name)
        changed = who != (self.context_id, self.pid, self.name) or self.state is not State.KNOWN
        if ack.context_id != self.context_id:
            self.topics, self.revision, self._coming, self._pages = frozenset(), -1, -1, None
            self.starts.clear()
        self.context_id, self.pid, self.name = who
        if ack.revision <= self.revision or ack.revision < self._coming or (ack.pages - 1) * PAGE_TOPICS >= topics_max:
            return changed
        if ack.revision > self._coming or self._pages is None:
            self._coming, self._pages = ack.revision, {}
        if ack.page * PAGE_TOPICS < topics_max:
            self._pages[ack.page] = ack.topics
        if len(self._pages) == ack.pages:
            listed = frozenset(topic for page in self._pages.values() for topic in page)
            self._pages = None
            self.revision = ack.revision
            changed |= listed != self.topics
            self.topics = listed
            self.starts = {topic: start for topic, start in self.starts.items() if topic in listed}
        return changed


class Clients:
    """All clients of one session."""

    def __init__(self, session_id: int, settings: ClientSettings, secret: bytes) -> None:
        """None is registered.

        Args:
            session_id: the session's.
            settings: how they are kept.
            secret: key of the cookies; 16 to 64 bytes that nobody else knows.
        """
        self._settings = settings
        self._session = session_id.to_bytes(4, "big")
        self._secret = secret
        # The longest silent first.
        self._clients: dict[Hashable, Client] = {}
        self.addresses: tuple[Hashable, ...] = ()
        """Of all that are registered."""
        self.changes = 0
        """Moves whenever one comes, goes, or receives other topics."""

    @property
    def known(self) -> tuple[Client, ...]:
        """All of whom it is known who they are."""
        return tuple(client for client in self._clients.values() if client.state is State.KNOWN)

    def get(self, address: Hashable) -> Client | None:
        """Returns the client that is registered there."""
        return self._clients.get(address)

    def cookie(self, address: Hashable, now_ns: int, back: int = 0) -> int:
        """The cookie for an address, of this epoch or of one before; the text form of the address has to tell all."""
        epoch = now_ns // self._settings.cookie_epoch - back
        text = f"{epoch} {address!r}".encode()
        digest = hashlib.blake2b(self._session + text, digest_size=8, key=self._secret).digest()
        return int.from_bytes(digest, "big") or 1

    def connect(self, address: Hashable, cookie: int, now_ns: int) -> tuple[Answer, int]:
        """Returns a CONNECT came; returns what to answer, and the cookie to tell."""
        client = self._clients.get(address)
        fresh = self.cookie(address, now_ns)
        state = client.state if client is not None else State.UNKNOWN
        valid = (client is not None and cookie == client.cookie) or (
            cookie != 0 and cookie in (fresh, self.cookie(address, now_ns, 1))
        )
        if not valid:
            return TABLE[state, Cause.CONNECT].answer, fresh
        if client is None and len(self._clients) >= self._settings.clients_max:
            return TABLE[state, Cause.FULL].answer, cookie
        step = TABLE[state, Cause.PROOF]
        if client is None:
            self._clients[address] = Client(address, cookie, step.state, now_ns)
            self._moved()
        else:
            client.cookie = cookie
            self._lives(client, now_ns)
        return step.answer, cookie

    def proves(self, address: Hashable, cookie: int, now_ns: int) -> Client | None:
        """The client from whom a packet with this cookie comes; None when it comes from nobody who may send it."""
        client = self._clients.get(address)
        if client is None or client.cookie != cookie:
            return None
        self._lives(client, now_ns)
        return client

    def ack(self, client: Client, ack: Ack, lead: int = 0) -> None:
        """A registered client tells of itself, when `lead` is the number of the next datagram."""
        client.lead, client.behind = ack.lead, max(0, lead - ack.lead)
        moved = client.listen(ack, self._settings.topics_max)
        client.state = TABLE[client.state, Cause.ACK].state
        self.changes += moved

    def leave(self, client: Client) -> None:
        """A registered client goes."""
        self._drop(client, Cause.LEAVE)

    def turn(self, now_ns: int) -> int:
        """Drops who is silent for too long; says how many."""
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
        """When to call `turn`; None without clients."""
        if not self._clients:
            return None
        return next(iter(self._clients.values())).heard_ns + self._settings.activity_timeout

    def _drop(self, client: Client, cause: Cause) -> None:
        client.state = TABLE[client.state, cause].state
        del self._clients[client.address]
        self._moved()

    def _lives(self, client: Client, now_ns: int) -> None:
        client.heard_ns = now_ns
        self._clients[client.address] = self._clients.pop(client.address)

    def _moved(self) -> None:
        self.addresses = tuple(self._clients)
        self.changes += 1
