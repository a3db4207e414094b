"""The control channels of the sessions that a context sends: what receivers ask, and what they answer."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ipcbus.recovery.control_channel import ControlChannel
from ipcbus.recovery.retransmitter import Retransmitter, RetransmitterSettings
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from ipcbus.transport.ring.session_pipes import SessionPipes, SourcePipeLink
from ipcbus.transport.udp.udp_link import UdpLink
from ipcbus.wire import control_messages, gmd_messages, share_messages
from ipcbus.wire.control_messages import InfoRequest, RangeRequest, TsniRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    from ipcbus.config import ContextOptions
    from ipcbus.recovery.frame_link import FrameLink
    from ipcbus.runtime.sending.guaranteed_sources import GuaranteedSources
    from ipcbus.runtime.sending.response_taker import ResponseTaker
    from ipcbus.runtime.sending.shared_sources import SharedSources
    from ipcbus.transport.sending_session import SendingSession
    from ringbuf.shared_words import WatchedWord

_MESSAGES_A_TURN = 64
_FULL_NS = 1_000_000
"""Time in ns after which a channel without room is looked at again, if its receiver does not call before."""
_CALLED_NS = 300_000_000
"""A receiver that has called this long ago may be about to ask."""
_CAME_NS = 1_000_000_000
"""A receiver that has come this long ago may be about to ask for the first time."""


class SessionChannels:
    """The control channels of one session."""

    def __init__(
        self,
        session: SendingSession,
        options: ContextOptions,
        responses: ResponseTaker,
        called: Callable[[], object],
        guaranteed: GuaranteedSources,
        shares: SharedSources,
        live_messages: Callable[[], int],
    ) -> None:
        """Begins without channels.

        Args:
            session: the session.
            options: the options of the context.
            responses: takes the responses to requests.
            called: called, by any thread, when `look` is due for a client over UDP.
            guaranteed: takes the messages of guaranteed delivery.
            shares: takes the messages of members of shares.
            live_messages: returns a number that changes with the live messages of the context.
        """
        self._guaranteed, self._shares, self._live_messages = guaranteed, shares, live_messages
        self.pipes = SessionPipes(session, queue_bytes=options.control_channel_size, group=options.shared_memory_group)
        settings = RetransmitterSettings(
            time_share=options.retransmit_time_share / 100, message_max=options.control_channel_message_maximum
        )
        self.retransmitter = Retransmitter(settings)
        self.pipes.on_leave = self._take_rest
        self._session, self._options, self._responses = session, options, responses
        self.pipes.inlet.hand(control_messages.RESPONSE, responses)
        self.pipes.inlet.hand(gmd_messages.GMD_ACK, guaranteed.inlet(session))
        self._called, self._called_ns = called, -_CALLED_NS
        self._clients_changes, self._came_ns = 0, -_CAME_NS
        self._udp_links: list[UdpLink] = []
        self._udp_called = self._ends_links = False
        if session.udp_sender is not None:
            session.udp_sender.on_links = self._note_call
        shares.serve(session, self.send_alone)
        self._lock = threading.Lock()
        self._closed = False
        self._channels: dict[FrameLink, ControlChannel] = {}
        self._peers: dict[Hashable, ControlChannel] = {}
        self.malformed = 0

    @property
    def any(self) -> bool:
        """Whether a receiver has a channel."""
        return bool(self._channels)

    def _note_call(self) -> None:
        self._called_ns = time.monotonic_ns()
        udp_sender = self._session.udp_sender
        if udp_sender is not None and udp_sender.reliable_sender.changes != self._clients_changes:
            self._clients_changes, self._came_ns = udp_sender.reliable_sender.changes, self._called_ns
        self._udp_called = True
        self._called()

    def look(self) -> bool:
        """Takes the messages of the receivers that called; returns whether more of them wait."""
        links: list[FrameLink] = []
        if self.pipes.inlet.changed():
            self._called_ns = time.monotonic_ns()  # before the calls are taken, for a thread that closes a source
            with self._lock:
                links += [] if self._closed else self.pipes.look()
            self._forget_ended()  # before what a new receiver in the same slot has sent
        if self._udp_called:
            self._udp_called = False  # first: another thread may set it meanwhile
            self._take_opened()
            links += [link for link in self._udp_links if link.ready()]
        behind = False
        for link in links:
            channel = self._channel(link)
            behind |= self._take_all(link, channel)
            if channel.queued and self._guaranteed.any:
                # The receiver may have called because it has made room.
                channel.flush()
                self._guaranteed.has_room(self._session)
        if self._udp_links:
            self._forget_ended()
        return behind

    def _take_opened(self) -> None:
        udp_sender = self._session.udp_sender
        self._udp_links += [link for _, link in udp_sender.take_opened()] if udp_sender is not None else []

    def _forget_ended(self) -> None:
        """Forgets the receivers that have gone, also one whose slot has another receiver already."""
        self._udp_links = [link for link in self._udp_links if not link.broken]
        served = {*self.pipes.links, *self._udp_links}
        for link in [link for link in list(self._channels) if link not in served]:
            if self._channels.pop(link, None) is not None:  # else another thread closes the session
                self._peers.pop(id(link), None)
                self.retransmitter.remove_peer(id(link))
                self._guaranteed.lost(self._session, id(link))
                self._shares.lost(self._session, id(link))
                if not self._channels and not self.pipes.arm(sleeps=True):  # until there is a channel again
                    self._called()

    def _channel(self, link: FrameLink) -> ControlChannel:
        channel = self._channels.get(link)
        if channel is None:
            options = self._options
            channel = ControlChannel(
                link,
                queue_max=options.control_channel_queue_maximum,
                message_max=options.control_channel_message_maximum + control_messages.RESENT_MAX,
            )
            if not self._channels:
                self.pipes.arm(sleeps=False)  # from now on, the context looks without being woken
            self._channels[link] = self._peers[id(link)] = channel
            self.retransmitter.add_peer(id(link), channel, epoch=isinstance(link, UdpLink))
        return channel

    def look_again(self) -> bool:
        """Takes messages of all receivers; returns whether more of them wait."""
        behind = False
        for link, channel in list(self._channels.items()):
            behind |= self._take_all(link, channel)
        return behind

    def retransmit(self, now_ns: int) -> int:
        """Sends what receivers have asked for; returns when to call again, in ns of the monotonic clock."""
        retransmitter = self.retransmitter
        for topic in retransmitter.infos_due(now_ns):
            source = self._session.topic_sources.get(topic)
            if source is not None:
                source._put_info()
        due_ns = retransmitter.due_ns(now_ns)
        if due_ns is not None and due_ns <= now_ns:
            has_more = retransmitter.turn(now_ns)
            due_ns = now_ns if has_more else now_ns + _FULL_NS
        waits = False
        for channel in list(self._channels.values()):
            waits |= channel.flush()
        if due_ns is None:
            return now_ns + _FULL_NS if waits else FOREVER_NS
        retransmitter.spent(now_ns, time.monotonic_ns(), self._live_messages())
        return max(due_ns, retransmitter.due_ns(now_ns) or 0)

    def send(self, peer: Hashable, message: bytes, bulk: bool) -> bool:
        """Sends a message of guaranteed delivery to a receiver; returns False when that is not possible now."""
        channel = self._peers.get(peer)
        if channel is None or not channel.send(message, bulk=bulk):
            return False
        channel.flush()
        return True

    def send_alone(self, peer: Hashable, message: bytes) -> bool:
        """Sends a message at once, if nothing waits for the receiver; any thread may call this."""
        channel = self._peers.get(peer)
        return channel is not None and channel.send_alone(message)

    def is_recovering(self, topic: int, now_ns: int, leave_out: Collection[int] = ()) -> bool:
        """Returns whether a receiver gets messages of a topic, or may be about to ask for them.

        Args:
            topic: the session's number of the topic.
            now_ns: the time.
            leave_out: ids of contexts that may not go on; it does not wait for long until they have a channel.
        """
        if self.pipes.inlet.changed():
            return True
        served = self._receivers()
        if served and now_ns - self._called_ns < _CALLED_NS:
            return True
        opening = self.pipes.opening()
        if opening and now_ns - self._called_ns < _CAME_NS:
            return True
        if not set(opening) <= set(leave_out):
            return True  # what a receiver wants is known when it has its channel
        if self._is_unread(served):
            self._called_ns = now_ns  # it may be about to ask for more when it has read everything
            return True
        return self._is_recovering_over_udp(now_ns) or any(
            self.retransmitter.busy(now_ns, topic, id(link)) for link in served
        )

    def _receivers(self) -> list[FrameLink]:
        """Returns the links of receivers that have not left; any thread may call this."""
        pipes = [link for link in self.pipes.links if self.pipes.link(link.slot) is link]
        return [*pipes, *(link for link in list(self._udp_links) if not link.broken)]

    def _is_recovering_over_udp(self, now_ns: int) -> bool:
        udp_sender = self._session.udp_sender
        if udp_sender is None:
            return False
        have_asked = sum(isinstance(link, UdpLink) for link in list(self._channels))
        sender = udp_sender.reliable_sender
        if sender.addresses and sender.changes != self._clients_changes:
            return True  # a client has come, or receives another topic, and the driver has yet to take note
        if now_ns - self._came_ns < _CAME_NS and have_asked < len(sender.addresses):
            return True
        return any(link.is_unread for link in self._udp_links)

    def _is_unread(self, served: list[FrameLink]) -> bool:
        """Returns whether messages wait here or in a pipe: a receiver reads nothing more when its session has ended."""
        channels = [self._channels.get(link) for link in served]
        return any(channel is not None and channel.queued for channel in channels) or any(
            link.is_unread for link in served if isinstance(link, SourcePipeLink)
        )

    def check(self) -> None:
        """Frees the channels of receivers that have gone."""
        self.pipes.check()
        self._forget_ended()

    def close(self) -> None:
        """Ends all channels; another thread than the driver may call this."""
        with self._lock:
            self._closed = True
            self.pipes.close()
        if self._session.udp_sender is not None:
            self._session.udp_sender.close_links()
        self._channels.clear()
        self._peers.clear()

    def _take_rest(self, link: FrameLink) -> None:
        """Takes what a receiver sent before it left; no more than a pipe holds, as it may still send."""
        channel, frames = self._channel(link), self._options.control_channel_size // 64 // _MESSAGES_A_TURN
        for _ in range(frames):
            if not self._take_all(link, channel):
                return

    def _take_resent(self, places: list[tuple[int, int]], message: bytes) -> None:
        """Takes a response that went over other links before, unless it came over one of them."""
        found, came = control_messages.decode_response(message), self._came(places)
        if found is None:
            self.malformed += 1
        elif not came:
            self._responses.respond(*found)

    def _came(self, places: list[tuple[int, int]]) -> bool:
        """Ends links, and returns whether one of them has brought its frame."""
        udp_sender = self._session.udp_sender
        if udp_sender is None:
            return False
        frames = [(udp_sender.end_link(epoch), frame) for epoch, frame in places]
        self._take_opened()
        if not self._ends_links:  # a link that is ended may bring such a message too
            self._ends_links = True
            try:
                for link in [each for each in self._udp_links if each.window.peer_epoch in dict(places)]:
                    self._take_rest(link)  # what came before comes first
            finally:
                self._ends_links = False
        return any(came > frame for came, frame in frames)

    def _take_all(self, link: FrameLink, channel: ControlChannel) -> bool:
        for _ in range(_MESSAGES_A_TURN):
            message = channel.receive()
            if message is None:
                return channel.behind
            found = control_messages.decode_response(message)
            if found is not None:
                self._responses.respond(*found)
                continue
            again = control_messages.decode_resent(message)
            if again is not None:
                self._take_resent(*again)
                continue
            if gmd_messages.is_gmd(message):
                self._guaranteed.take(self._session, id(link), message)
                continue
            if share_messages.is_share(message):
                self._shares.take(self._session, id(link), message)
                continue
            asked = control_messages.decode(message)
            if isinstance(asked, InfoRequest | RangeRequest | TsniRequest):
                self.retransmitter.receive(id(link), asked, time.monotonic_ns())
                channel.flush()
            else:
                self.malformed += asked is None
        return True


class ControlChannels:
    """The control channels of all sessions of a context. Runs on the driver, but for `add` and `forget`."""

    def __init__(
        self,
        options: ContextOptions,
        responses: ResponseTaker,
        hurry: Callable[[], object],
        guaranteed: GuaranteedSources,
        shares: SharedSources,
        delivered: Callable[[], int],
    ) -> None:
        """Begins without sessions.

        Args:
            options: the options of the context.
            responses: takes the responses to requests.
            hurry: makes the event loop call `turn` soon; any thread calls this.
            guaranteed: takes the messages of guaranteed delivery.
            shares: takes the messages of members of shares.
            delivered: returns a number that changes with the messages that this context gets.
        """
        self._guaranteed, self._shares, self._delivered = guaranteed, shares, delivered
        self._options, self._responses, self._hurry = options, responses, hurry
        self.is_called = False
        """Whether clients over UDP have called, so that `look` is due."""
        self.looks_after_read = False
        """Whether the driver reads the sockets now, and calls `look` right after that."""
        self._sessions: dict[SendingSession, SessionChannels] = {}
        self._behind = False
        self._ended_messages = self._ended_bytes = 0  # of sessions that have ended
        self.changes = 0
        """Changes whenever `words` does."""

    def add(self, session: SendingSession) -> None:
        """Serves a session from now on."""
        self._sessions[session] = SessionChannels(
            session,
            self._options,
            self._responses,
            self._note_call,
            self._guaranteed,
            self._shares,
            self._live_messages,
        )
        self.changes += 1

    def _live_messages(self) -> int:
        return sum(session.channel.writer.head for session in list(self._sessions)) + self._delivered()

    def _note_call(self) -> None:
        self.is_called = True
        if not self.looks_after_read:
            self._hurry()

    def forget(self, session: SendingSession) -> None:
        """Ends the channels of a session that ends."""
        served = self._sessions.pop(session, None)
        self._guaranteed.forget(session)
        self._shares.forget(session)
        if served is not None:
            self._ended_messages += served.retransmitter.counts.messages
            self._ended_bytes += served.retransmitter.counts.bytes
            served.close()
            self.changes += 1

    def words(self) -> list[WatchedWord]:
        """Returns the words that are not 0 while receivers of rings call; those over the network send packets."""
        return [served.pipes.inlet for each, served in list(self._sessions.items()) if not each.advert.over_udp]

    def look(self) -> None:
        """Handles the calls of receivers."""
        self.is_called = False  # first: another thread may set it meanwhile
        for served in self._served():
            self._behind |= served.look()

    def turn(self, now_ns: int) -> int:
        """Handles what `look` left; returns when to call again, in ns of the monotonic clock."""
        if self._behind:
            self._behind = any([served.look_again() for served in self._served()])
        due_ns = min((served.retransmit(now_ns) for served in self._served() if served.any), default=FOREVER_NS)
        if self._guaranteed.any:
            turns = [self._guaranteed.turn(each, now_ns, served.send) for each, served in list(self._sessions.items())]
            due_ns = min(due_ns, *turns)
        if self._shares.any:
            turns = [self._shares.turn(each, now_ns, served.send) for each, served in list(self._sessions.items())]
            due_ns = min(due_ns, *turns)
        return now_ns if self._behind else due_ns

    def counters(self) -> dict[str, int]:
        """Returns the counters of retransmissions, by their names in the layout."""
        found = [served.retransmitter for served in self._served()]
        return {
            "retransmissions_sent": self._ended_messages + sum(each.counts.messages for each in found),
            "retransmission_bytes_sent": self._ended_bytes + sum(each.counts.bytes for each in found),
        }

    @property
    def has_work(self) -> bool:
        """Whether messages of receivers wait, or receivers have asked for messages, so that `turn` is due."""
        return (
            self._behind
            or self._guaranteed.has_work
            or self._shares.has_work
            or any(served.retransmitter.recovering for served in self._served())
        )

    def retransmitter(self, session: SendingSession) -> Retransmitter | None:
        """Returns what answers the requests for retained messages of a session; None without control channels."""
        served = self._sessions.get(session)
        return served.retransmitter if served is not None else None

    def is_recovering(self, session: SendingSession, topic: int, leave_out: Collection[int]) -> bool:
        """Returns whether a receiver gets messages that a source keeps; any thread may call this."""
        served = self._sessions.get(session)
        return served is not None and served.is_recovering(topic, time.monotonic_ns(), leave_out)

    def arm(self, *, sleeps: bool) -> bool:
        """Shows receivers whether this context sleeps; returns whether none of them calls.

        A session without channels always counts as asleep, so that its first call rings the doorbell.
        """
        return all([served.pipes.arm(sleeps=sleeps) for served in self._served() if served.any]) and not self._behind

    def check(self) -> None:
        """Frees the channels of receivers that have gone, by timer."""
        for served in self._served():
            served.check()

    def abandon(self) -> None:
        """Gives the channels up in the child of a fork."""
        for served in self._served():
            served.pipes.abandon()

    def _served(self) -> list[SessionChannels]:
        return list(self._sessions.values())
