"""Who forges packets: UDP sockets on loopback, and packets of a session that are changed at random."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING

from ipcbus.wire import udp_packets
from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from random import Random
    from typing import Self

    from ipcbus.transport.udp.mmsg import Address

_BIG = (0, 1, 255, 65535, (1 << 32) - 1, udp_packets.NUMBER_MAX, (1 << 64) - 1)

_IP = struct.Struct("!BBHHHBBH4s4s")
_UDP = struct.Struct("!HHHH")


class Attacker:
    """A socket with an account of what it has sent and got."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.sent = self.got = 0
        self.packets: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, packet: bytes, to: Address) -> None:
        """Sends one."""
        self.sent += len(packet)
        self.socket.sendto(packet, to)

    def hear(self, timeout: float = 0.0) -> list[bytes]:
        """What has come; waits for the first."""
        self.socket.settimeout(timeout)
        found: list[bytes] = []
        try:
            while True:
                found.append(self.socket.recv(65536))
                self.socket.settimeout(0.0)
        except (BlockingIOError, TimeoutError, ConnectionRefusedError):
            pass
        self.got += sum(map(len, found))
        self.packets += found
        return found

    def ask(self, session_id: int, to: Address, cookie: int = 0, nonce: int = 0) -> udp_packets.Packet:
        """Sends a CONNECT and waits for the answer: all that was sent before has been dealt with by then."""
        self.send(udp_packets.connect(session_id, cookie, nonce), to)
        deadline = time.monotonic() + GIVE_UP_S
        while time.monotonic() < deadline:
            for answer in self.hear(0.1):
                found = udp_packets.parse(answer)
                if isinstance(found, udp_packets.SessionMessage) and found.nonce == nonce:
                    return found
                if isinstance(found, udp_packets.Client) and found.type == udp_packets.RESET and found.cookie == nonce:
                    return found
        raise AssertionError("no answer to a CONNECT")


class Spoofer:
    """A raw socket that sends packets in the name of any address on loopback; only root may have one."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, packet: bytes, of: Address, to: Address) -> None:
        """Sends a packet as if it came from `of`."""
        head = _IP.pack(0x45, 0, 0, 0, 0, 64, socket.IPPROTO_UDP, 0, _bytes_of(of), _bytes_of(to))
        ports = _UDP.pack(of[1], to[1], _UDP.size + len(packet), 0)
        self.socket.sendto(head + ports + packet, (str(to[0]), 0))


def _bytes_of(address: Address) -> bytes:
    return socket.inet_aton(str(address[0]))


def changed(random: Random, said: list[bytes]) -> bytes:
    """One of these packets with a few changes, or the front of one with the end of another."""
    packet = bytearray(random.choice(said))
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(packet) + 1)
        how = random.randrange(4)
        if how == 0 and at < len(packet):
            packet[at] ^= 1 << random.randrange(8)
        elif how == 1:
            packet = packet[:at] + random.choice(said)[at:]
        elif how == 2:
            packet[at : at + 8] = random.choice(_BIG).to_bytes(8, "big")
        else:
            packet[at:at] = random.randbytes(random.choice([1, 4, 900]))
    return bytes(packet[:60_000])


def forged(random: Random, session_id: int, cookie: int = 0) -> bytes:
    """A packet that somebody made up, whole and true to the form or not."""
    number = random.choice([*_BIG, random.randrange(1000)]) & udp_packets.NUMBER_MAX
    told = random.choice([cookie, random.getrandbits(64), 0])
    numbers = range(number, min(number + random.choice([1, 5, 300]), udp_packets.NUMBER_MAX))
    who = (random.getrandbits(64), 1, "forger")
    topics = range(random.choice([0, 1, 256]))
    made = [
        udp_packets.connect(session_id, told, random.getrandbits(64)),
        *udp_packets.naks(session_id, told, numbers or [number]),
        *udp_packets.ncfs(session_id, random.randrange(4), numbers or [number]),
        *udp_packets.acks(session_id, told, number, who, random.getrandbits(62), topics, udp_packets.ASKS),
        udp_packets.leave(session_id, told),
        udp_packets.reset(session_id, told, random.choice([0, udp_packets.GONE])),
        udp_packets.session_message(session_id, udp_packets.NUMBER_MAX, number, random.getrandbits(16), told, told),
        udp_packets.data(session_id, number, 0, 1, 0, random.randbytes(40), random.getrandbits(16)),
        *udp_packets.topics(session_id, told, number, [(1, number, number)]),
        random.randbytes(random.randrange(1, 1500)),
    ]
    packet = bytearray(random.choice(made))
    if random.random() < 0.5:
        for _ in range(random.randint(1, 4)):
            packet[random.randrange(len(packet))] ^= 1 << random.randrange(8)
    if random.random() < 0.2:
        del packet[random.randrange(len(packet)) :]
    return bytes(packet)
