"""What other contexts of the network have told that they publish, for as long as it holds."""

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
"""Longest time that anything holds for, in seconds, whatever its advert says."""

# What the objects behind them take here, about; measured with CPython 3.11.
CONTEXT_BYTES = 600
SESSION_BYTES = 1100
TOPIC_BYTES = 450


class _Topic:
    """A topic of a session, from when on it fades, and until when it holds."""

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
    __slots__ = ("advert", "context", "host", "told", "topics")

    def __init__(self, context: _Context, told: resolution_packets.Session, advert: SessionAdvert) -> None:
        self.context = context
        self.told = told
        self.host = told.host
        self.advert = advert
        self.topics: dict[int, _Topic] = {}


class _Context:
    """A context; without sessions it is one that has gone, and is kept so that late adverts do not bring it back."""

    __slots__ = ("due_ns", "host", "key", "newest", "pid", "sessions", "until_ns")

    def __init__(self, key: tuple[str, int], host: str) -> None:
        self.key = key
        self.host = host
        self.pid = 0
        self.newest = 0
        self.sessions: dict[int, _Session] = {}
        self.due_ns = self.until_ns = NEVER


class AdvertCache:
    """Bounded for each host that sessions are on, and in all. A host that is over its bound tells nothing new.

    Nothing is pushed out by anything new. In the last third of its time, without having been told again, a topic fades:
    it is to be asked for before it is forgotten.

    Attributes:
        changes: moves when `sources` does.
        refused: topics for which there was no room.
        old: packets that came after later ones, or twice.
    """

    def __init__(self, bytes_max: int, host_share: int) -> None:
        """Empty.

        Args:
            bytes_max: memory in all.
            host_share: part of it for one host: one in so many.
        """
        self.changes = self.refused = self.old = 0
        self._bytes_max, self._host_max = bytes_max, bytes_max // host_share
        self._bytes = 0
        self._hosts: Counter[str] = Counter()
        self._contexts: dict[tuple[str, int], _Context] = {}
        self._sources_of: Counter[str] = Counter()
        self._fading: Counter[str] = Counter()
        self._turned: set[str] = set()
        self._deadlines: TimerQueue[_Topic | _Context] = TimerQueue()
        self._offers: Offers | None = None

    def __contains__(self, topic: str) -> bool:
        """Returns whether somebody publishes a topic."""
        return topic in self._sources_of

    def surely(self, topic: str) -> bool:
        """Returns whether somebody publishes a topic, and all who do have said so lately."""
        return topic in self._sources_of and topic not in self._fading

    def __len__(self) -> int:
        """Topics that are known, each once."""
        return len(self._sources_of)

    @property
    def bytes(self) -> int:
        """Memory that is used, about."""
        return self._bytes

    @property
    def next_ns(self) -> int | None:
        """When something ceases to hold at the earliest."""
        first = self._deadlines.first()
        return None if first is None else first.due_ns

    def advert(self, origin: str, packet: resolution_packets.Advert, now_ns: int) -> None:
        """Somebody publishes this.

        Args:
            origin: the host that said so where that can be known, else one word for all.
            packet: what was said.
            now_ns: the time.
        """
        head = packet.head
        context = self._contexts.get((origin, head.context_id))
        if context is not None and not self._newer(context, head.number):
            return
        holds_ns = min(packet.ttl, TTL_MAX) * _NS
        until_ns, fade_ns = now_ns + holds_ns, now_ns + holds_ns * 2 // 3
        for told, topics in packet.groups:
            if context is None:
                if not self._pay(told.host, CONTEXT_BYTES):
                    self.refused += len(topics)
                    continue
                context = _Context((origin, head.context_id), told.host)
                self._contexts[context.key] = context
                context.newest, context.due_ns = head.number, until_ns
                self._deadlines.put(context)
            context.pid = head.pid
            context.until_ns = max(context.until_ns, until_ns)
            session = self._session(context, told)
            for number, topic in topics.items():
                if session is None or not self._topic(session, number, topic, fade_ns, until_ns):
                    self.refused += 1
            if session is not None and not session.topics:
                self._drop_session(session)

    def final(self, origin: str, packet: resolution_packets.FinalAdvert) -> None:
        """Somebody does not publish this any more."""
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
        """Forgets what has not been told again in time."""
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
        """Returns all sessions with their topics. Not to be changed."""
        if self._offers is None:
            self._offers = {}
            for context in self._contexts.values():
                for session in context.sessions.values():
                    known = self._offers.setdefault(session.advert, {})
                    known.update((number, topic.source) for number, topic in session.topics.items())
        return self._offers

    def contexts(self) -> dict[int, int]:
        """Processes of the contexts that publish something, by the contexts' ids."""
        return {key[1]: context.pid for key, context in self._contexts.items() if context.sessions}

    def turned(self) -> set[str]:
        """Topics that have got their first source, or lost their last one, or for which `surely` has changed."""
        found, self._turned = self._turned, set()
        return found

    def _newer(self, context: _Context, number: int) -> bool:
        if number <= context.newest:
            self.old += 1
            return False
        context.newest = number
        return True

    def _session(self, context: _Context, told: resolution_packets.Session) -> _Session | None:
        """Returns the session as it is told now; None when there is no room for it."""
        session = context.sessions.get(told.session_id)
        if session is not None and session.told == told:
            return session
        if session is not None:
            self._drop_session(session)
        if not self._pay(told.host, SESSION_BYTES):
            return None
        advert = SessionAdvert(
            context.key[1],
            told.local,
            told.transport,
            told.session_id,
            told.transport_id,
            told.window,
            told.source_paced,
            told.topics_max,
            Endpoint(told.host, told.port, told.group, told.group_port),
        )
        session = context.sessions[told.session_id] = _Session(context, told, advert)
        self._changed()
        return session

    def _topic(self, session: _Session, number: int, name: str, fade_ns: int, until_ns: int) -> bool:
        topic = session.topics.get(number)
        if topic is not None and topic.source.topic != name:
            self._drop_topic(topic, with_session=False)
            topic = None
        if topic is None:
            topic = _Topic(session, number, SourceAdvert(session.advert, name, number))
            if not self._pay(session.host, topic.cost):
                return False
            session.topics[number] = topic
            if name not in self._sources_of:
                self._turned.add(name)
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
        self._turned.add(name)

    def _drop_topic(self, topic: _Topic, *, with_session: bool = True) -> None:
        session, name = topic.session, topic.source.topic
        del session.topics[topic.number]
        topic.due_ns = NEVER
        self._fade(topic, fading=False)
        self._refund(session.host, topic.cost)
        self._sources_of[name] -= 1
        if not self._sources_of[name]:
            del self._sources_of[name]
            self._turned.add(name)
        self._changed()
        if with_session and not session.topics:
            self._drop_session(session)

    def _drop_session(self, session: _Session) -> None:
        for topic in list(session.topics.values()):
            self._drop_topic(topic, with_session=False)
        del session.context.sessions[session.told.session_id]
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
