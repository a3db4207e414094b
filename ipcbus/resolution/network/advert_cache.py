"""The cache of adverts of other contexts in the network."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ipcbus.resolution.local.adverts import Endpoint, SessionAdvert, SourceAdvert
from ipcbus.resolution.network.timer_queue import NEVER, TimerQueue

if TYPE_CHECKING:
    from ipcbus.wire import resolution_packets

    Offers = dict[SessionAdvert, dict[int, SourceAdvert]]
    """Topics by their numbers, by session."""

_NS = 1_000_000_000

TTL_MAX = 600
"""Longest time in seconds that an advert holds, even if it says more."""

# The approximate memory of the objects, measured with CPython 3.11.
CONTEXT_BYTES = 600
SESSION_BYTES = 1100
TOPIC_BYTES = 450


class _Topic:
    """A topic of a session, the time when it begins to fade, and the time when it is forgotten."""

    __slots__ = ("due_ns", "fade_ns", "fading", "number", "session", "source", "until_ns")

    def __init__(self, session: _Session, number: int, source: SourceAdvert) -> None:
        self.session = session
        self.number = number
        self.source = source
        self.fading = False
        self.due_ns = self.fade_ns = self.until_ns = NEVER

    @property
    def cost(self) -> int:
        return TOPIC_BYTES + len(self.source.topic)


class _Session:
    __slots__ = ("advert", "context", "host", "packed", "topics")

    def __init__(self, context: _Context, packed: resolution_packets.Session, advert: SessionAdvert) -> None:
        self.context = context
        self.packed = packed
        self.host = packed.host
        self.advert = advert
        self.topics: dict[int, _Topic] = {}


class _Context:
    """A context; one without sessions has ended, and is kept so that late adverts do not bring it back."""

    __slots__ = ("due_ns", "host", "key", "newest", "pid", "sessions", "until_ns")

    def __init__(self, key: tuple[str, int], host: str) -> None:
        self.key = key
        self.host = host
        self.pid = 0
        self.newest = 0
        self.sessions: dict[int, _Session] = {}
        self.due_ns = self.until_ns = NEVER


class AdvertCache:
    """The sessions and topics of other contexts, limited by host and in total.

    New topics never replace known ones; they are refused when there is no room. A topic fades in the last third of its
    time if it was not advertised again: the context should send a query before the topic is forgotten.

    Attributes:
        changes: a number that changes with `sources`.
        refused: topics for which there was no room.
        old: packets that arrived after later ones, or twice.
    """

    def __init__(self, bytes_max: int, host_share: int) -> None:
        """Makes an empty cache.

        Args:
            bytes_max: its memory in bytes.
            host_share: one host may use this memory divided by `host_share`.
        """
        self.changes = self.refused = self.old = 0
        self._bytes_max, self._host_max = bytes_max, bytes_max // host_share
        self._bytes = 0
        self._hosts: Counter[str] = Counter()
        self._contexts: dict[tuple[str, int], _Context] = {}
        self._sources_of: Counter[str] = Counter()
        self._fading: Counter[str] = Counter()
        self._changed_topics: set[str] = set()
        self._deadlines: TimerQueue[_Topic | _Context] = TimerQueue()
        self._offers: Offers | None = None

    def __contains__(self, topic: str) -> bool:
        """Returns whether a topic has a source."""
        return topic in self._sources_of

    def is_fresh(self, topic: str) -> bool:
        """Returns whether a topic has sources, and none of them fades."""
        return topic in self._sources_of and topic not in self._fading

    def __len__(self) -> int:
        """Returns the number of different topics."""
        return len(self._sources_of)

    @property
    def bytes(self) -> int:
        """Approximate memory in use, in bytes."""
        return self._bytes

    @property
    def next_ns(self) -> int | None:
        """When `turn` has to be called next; None while the cache is empty."""
        first = self._deadlines.first()
        return None if first is None else first.due_ns

    def advert(self, origin: str, packet: resolution_packets.Advert, now_ns: int) -> None:
        """Adds the sessions and topics of an advert.

        Args:
            origin: the host that sent the advert, or one word for all hosts if that cannot be known.
            packet: the advert.
            now_ns: the time.
        """
        head = packet.head
        context = self._contexts.get((origin, head.context_id))
        if context is not None and not self._newer(context, head.number):
            return
        holds_ns = min(packet.ttl, TTL_MAX) * _NS
        until_ns, fade_ns = now_ns + holds_ns, now_ns + holds_ns * 2 // 3
        for packed, topics in packet.groups:
            if context is None:
                if not self._pay(packed.host, CONTEXT_BYTES):
                    self.refused += len(topics)
                    continue
                context = _Context((origin, head.context_id), packed.host)
                self._contexts[context.key] = context
                context.newest, context.due_ns = head.number, until_ns
                self._deadlines.put(context)
            context.pid = head.pid
            context.until_ns = max(context.until_ns, until_ns)
            session = self._session(context, packed)
            for number, topic in topics.items():
                retains = (packed.session_id, number) in packet.retaining
                if session is None or not self._topic(session, number, (topic, retains), (fade_ns, until_ns)):
                    self.refused += 1
            if session is not None and not session.topics:
                self._drop_session(session)

    def final(self, origin: str, packet: resolution_packets.FinalAdvert) -> None:
        """Removes the sessions and topics of a final advert."""
        context = self._contexts.get((origin, packet.head.context_id))
        if context is None or not self._newer(context, packet.head.number):
            return
        if not packet.groups:
            for session in list(context.sessions.values()):
                self._drop_session(session)
        for session_id, numbers in packet.groups:
            found = context.sessions.get(session_id)
            if found is None:
                continue
            if not numbers:
                self._drop_session(found)
            for number in numbers:
                topic = found.topics.get(number)
                if topic is not None:
                    self._drop_topic(topic)

    def turn(self, now_ns: int) -> None:
        """Forgets the topics and contexts whose time is over, and lets topics fade."""
        while (first := self._deadlines.first()) is not None and first.due_ns <= now_ns:
            self._deadlines.pop()
            if isinstance(first, _Topic) and first.fade_ns > now_ns:
                first.due_ns = first.fade_ns
                self._deadlines.put(first)
            elif first.until_ns > now_ns:
                if isinstance(first, _Topic):
                    self._fade(first)
                first.due_ns = first.until_ns
                self._deadlines.put(first)
            elif isinstance(first, _Topic):
                self._drop_topic(first)
            else:
                for session in list(first.sessions.values()):
                    self._drop_session(session)
                self._refund(first.host, CONTEXT_BYTES)
                del self._contexts[first.key]

    def sources(self) -> Offers:
        """Returns all sessions with their topics; the caller must not change them."""
        if self._offers is None:
            self._offers = {}
            for context in self._contexts.values():
                for session in context.sessions.values():
                    known = self._offers.setdefault(session.advert, {})
                    known.update((number, topic.source) for number, topic in session.topics.items())
        return self._offers

    def contexts(self) -> dict[int, int]:
        """Returns the pids of the contexts that have sources, by context id."""
        return {key[1]: context.pid for key, context in self._contexts.items() if context.sessions}

    def take_changed(self) -> set[str]:
        """Returns the topics whose first source was added, whose last one was removed, or whose `is_fresh` changed.

        Each change is returned once.
        """
        found, self._changed_topics = self._changed_topics, set()
        return found

    def _newer(self, context: _Context, number: int) -> bool:
        if number <= context.newest:
            self.old += 1
            return False
        context.newest = number
        return True

    def _session(self, context: _Context, packed: resolution_packets.Session) -> _Session | None:
        """Returns the session of an advert; None if there is no room for it."""
        session = context.sessions.get(packed.session_id)
        if session is not None and session.packed == packed:
            return session
        if session is not None:
            self._drop_session(session)
        if not self._pay(packed.host, SESSION_BYTES):
            return None
        advert = SessionAdvert(
            context.key[1],
            packed.local,
            packed.transport,
            packed.session_id,
            packed.transport_id,
            packed.window,
            packed.source_paced,
            packed.topics_max,
            Endpoint(packed.host, packed.port, packed.group, packed.group_port, packed.tcp),
        )
        session = context.sessions[packed.session_id] = _Session(context, packed, advert)
        self._changed()
        return session

    def _topic(self, session: _Session, number: int, offer: tuple[str, bool], times: tuple[int, int]) -> bool:
        """Adds or renews a topic; returns False when there is no room.

        Args:
            session: its session.
            number: its number.
            offer: its name, and whether its source keeps what it sent.
            times: when it begins to fade, and when it is forgotten.
        """
        (name, retains), (fade_ns, until_ns) = offer, times
        topic = session.topics.get(number)
        if topic is not None and (topic.source.topic, topic.source.retains) != offer:
            self._drop_topic(topic, with_session=False)
            topic = None
        if topic is None:
            topic = _Topic(session, number, SourceAdvert(session.advert, name, number, retains))
            if not self._pay(session.host, topic.cost):
                return False
            session.topics[number] = topic
            if name not in self._sources_of:
                self._changed_topics.add(name)
            self._sources_of[name] += 1
            self._changed()
        topic.fade_ns, topic.until_ns = fade_ns, until_ns
        self._fade(topic, fading=False)
        if topic.due_ns == NEVER or fade_ns < topic.due_ns:
            topic.due_ns = fade_ns
            self._deadlines.put(topic)
        return True

    def _fade(self, topic: _Topic, *, fading: bool = True) -> None:
        if topic.fading == fading:
            return
        name, topic.fading = topic.source.topic, fading
        self._fading[name] += 1 if fading else -1
        if not self._fading[name]:
            del self._fading[name]
        self._changed_topics.add(name)

    def _drop_topic(self, topic: _Topic, *, with_session: bool = True) -> None:
        session, name = topic.session, topic.source.topic
        del session.topics[topic.number]
        topic.due_ns = NEVER
        self._fade(topic, fading=False)
        self._refund(session.host, topic.cost)
        self._sources_of[name] -= 1
        if not self._sources_of[name]:
            del self._sources_of[name]
            self._changed_topics.add(name)
        self._changed()
        if with_session and not session.topics:
            self._drop_session(session)

    def _drop_session(self, session: _Session) -> None:
        for topic in list(session.topics.values()):
            self._drop_topic(topic, with_session=False)
        del session.context.sessions[session.packed.session_id]
        self._refund(session.host, SESSION_BYTES)
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._offers = None

    def _pay(self, host: str, cost: int) -> bool:
        if self._bytes + cost > self._bytes_max or self._hosts[host] + cost > self._host_max:
            return False
        self._bytes += cost
        self._hosts[host] += cost
        return True

    def _refund(self, host: str, cost: int) -> None:
        self._bytes -= cost
        self._hosts[host] -= cost
        if not self._hosts[host]:
            del self._hosts[host]
