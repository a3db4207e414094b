"""The sender of a session over TCP: what waits in the ring goes to each connection in one go."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from ipcbus.reliability.stream_sender import CLOSE
from ipcbus.transport.tcp.outflow import RecordStream, take_packet
from ipcbus.transport.udp.udp_sender import UdpSender

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ipcbus.reliability.stream_sender import StreamSender
    from ipcbus.transport.tcp.stream_port import StreamPort
    from ipcbus.transport.tcp.stream_socket import StreamSocket
    from ringbuf.answer_wait import AnswerWait


class TcpSender(UdpSender):
    """The sender of one session over TCP. Sending threads and the driver of the context call it."""

    network = "TCP"

    def _make_records(self) -> RecordStream:
        return RecordStream(self._reader, self._reliable_sender.session_id)

    def direct(self, published: Callable[[int], object], answers: AnswerWait | None) -> Callable[[int], object]:
        """As in `UdpSender`."""
        self._stream.allow(self.bit, self._lock, published, self._listener.ring_has_room, answers)
        return self._stream

    @cached_property
    def _stream(self) -> RecordStream:
        return cast("RecordStream", self._records)

    def _take_note(self) -> None:
        packets, connections, sent_ns = self._stream.settle()
        if packets:
            cast("StreamSender", self._reliable_sender).sent(packets, sent_ns)
            cast("StreamSocket", self.session_socket.socket).note_sent(packets, connections)

    def _go_on_directly(self) -> None:
        self._stream.start(cast("StreamSender", self._reliable_sender).lead)

    def _send_records(self, now_ns: int) -> bool:
        """Sends records to clients that have got all before; returns whether these were all there are."""
        sender = cast("StreamSender", self.reliable_sender)
        if not sender.is_level:
            return False
        port = cast("StreamPort", self.session_socket)
        packets, room, drained = port.send_records(self._stream, sender.targets, sender.lead)
        if packets:
            sender.sent(packets, now_ns)
        if room:
            self._listener.ring_has_room()
        return drained

    def _send_published(self, now_ns: int) -> bool:
        if self._send_records(now_ns):
            return True
        sender = cast("StreamSender", self.reliable_sender)
        while True:
            more = self._gather(sender, now_ns)
            # Also when nothing was read: what clients take now may end the wait for them, and no event would come then.
            self._send_packets()
            if not more or sender.blocked:
                return False

    def receive(self, packet: bytes, address: Hashable, now_ns: int) -> None:
        """Takes a packet from a client, or the end of its connection: a twin reads on for it until it returns."""
        with self._lock:
            client = self.reliable_sender.client_at(address) if self.twin and packet == CLOSE else None
            if client is not None and client.context_id:
                self._await_return(client.context_id, client.pid, None, now_ns)
            super().receive(packet, address, now_ns)

    def _turn(self, now_ns: int, *, shows: bool) -> int | None:
        following = super()._turn(now_ns, shows=shows)
        patience_ns = self.reliable_sender.settings.clients.activity_timeout
        due_ns = cast("StreamSocket", self.session_socket.socket).end_strangers(now_ns, patience_ns)
        return min((time for time in (following, due_ns) if time is not None), default=None)

    def _gather(self, sender: StreamSender, now_ns: int) -> bool:
        """Reads the ring until a client has enough to take; returns whether there may be more."""
        reader = self._reader
        room, full = False, sender.blocked
        while not full:
            packet = take_packet(reader, sender.session_id, sender.lead)
            # Shown after each record, or skipped ones: a source that waits for room need not wait for all of them.
            room |= reader.show()
            if packet is None:
                if reader.broken and reader.resync() is not None:
                    continue  # the numbers of messages show clients what was in the damaged part
                break
            full = sender.add(packet, now_ns)
        if room:
            self._listener.ring_has_room()
        return full

    def _send_packets(self) -> None:
        # Until connections are full or all is sent: the system only says of one that was full that it has room.
        while pairs := self.reliable_sender.take():
            self.session_socket.send(pairs)  # type: ignore[arg-type]  # the addresses are those of the socket
