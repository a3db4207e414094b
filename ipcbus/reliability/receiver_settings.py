"""The settings and the counters of a reliable receiver."""

from __future__ import annotations

from dataclasses import dataclass, field

from ipcbus.reliability.receive_state import ReceiveCounts, ReceiveSettings
from ipcbus.wire import udp_packets


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """The settings of a reliable receiver; named as the options, times in ns.

    Attributes:
        receiving: loss detection, NAKs, activity timeout.
        connect_interval: time between two CONNECT.
        maximum_connect_attempts: number of CONNECT without an answer after which the receiver gives up. One that takes
            the datagrams of a group without being registered goes on with one in each activity timeout.
        acknowledgement_interval: time between two ACK.
        jump_max: a datagram whose number is farther than this above the known ones waits until the source has said, in
            a packet that proves it, how far it has sent.
        info_request_interval: time between two requests for the numbers of topics of which nothing has come; 0 turns
            them off.
        info_request_maximum: largest number of these requests for a topic.
    """

    receiving: ReceiveSettings = field(default_factory=ReceiveSettings)
    connect_interval: int = 100_000_000
    maximum_connect_attempts: int = 600
    acknowledgement_interval: int = 500_000_000
    jump_max: int = 64
    info_request_interval: int = 1_000_000_000
    info_request_maximum: int = 60


@dataclass(slots=True)
class ReceiverCounts(ReceiveCounts):
    """The counters of a reliable receiver, by Ultra Messaging's names.

    Attributes:
        dgrams_dropped_size: packets that are too short.
        dgrams_dropped_type: packets of an unknown type.
        dgrams_dropped_version: packets of another version.
        dgrams_dropped_hdr: packets with an invalid header.
        dgrams_dropped_sid: packets of another session.
        dgrams_dropped_other: packets from another address, without proof, with a number too far away, or before the
            session was joined.
        connects_sent: CONNECT packets.
        acks_sent: ACK packets.
        resets_rcved: RESET packets: the source did not know the receiver.
        evictions_rcved: times that the source said that it does not wait for the receiver any more, as that had kept it
            waiting for too long.
    """

    dgrams_dropped_size: int = 0
    dgrams_dropped_type: int = 0
    dgrams_dropped_version: int = 0
    dgrams_dropped_hdr: int = 0
    dgrams_dropped_sid: int = 0
    dgrams_dropped_other: int = 0
    connects_sent: int = 0
    acks_sent: int = 0
    resets_rcved: int = 0
    evictions_rcved: int = 0

    def dropped(self, packet: bytes, session_id: int | None) -> None:
        """Counts a packet that does not belong to a session, or is invalid.

        Args:
            packet: the packet.
            session_id: the id of the session; None for a packet that does not come from its source.
        """
        found = udp_packets.parse(packet)
        if found is None:
            name = f"dgrams_dropped_{udp_packets.fault(packet)}"
            setattr(self, name, getattr(self, name) + 1)
        elif session_id is not None and found.session_id != session_id:
            self.dgrams_dropped_sid += 1
        else:
            self.dgrams_dropped_other += 1
