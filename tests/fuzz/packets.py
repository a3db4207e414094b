"""Changed packets of running sessions, put into both ends: `python -m tests.fuzz.packets [--runs N] [--seed N]`.

Each run changes one packet that a session over UDP did send, cookies and all, and hands it to the source or a receiver.
Nothing may crash, no container may outgrow its bound, and no unproven address may be sent more than came from it.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
from collections import Counter, deque
from random import Random
from typing import TYPE_CHECKING

from ipcbus.reliability.clients import ClientSettings
from ipcbus.reliability.loss_detector import NakSettings
from ipcbus.reliability.receive_state import ReceiveSettings
from ipcbus.reliability.receiver_settings import ReceiverSettings
from ipcbus.reliability.reliable_receiver import ReliableReceiver
from ipcbus.reliability.reliable_sender import ALL, ReliableSender
from ipcbus.reliability.send_state import SendSettings
from ipcbus.reliability.session_sender import SenderSettings

if TYPE_CHECKING:
    from collections.abc import Hashable

MS = 1_000_000
AT = ("10.0.0.1", 14380)
STRANGER = ("10.9.9.9", 1)
RUNS_OF_A_SESSION = 5000

SEND = SendSettings(window_size=20_000, data_rate=0, retransmit_rate=100_000, queue_max=50)
CLIENTS = ClientSettings(clients_max=4, topics_max=512)
RECEIVE = ReceiverSettings(
    ReceiveSettings(NakSettings(initial_backoff=0, entries_max=300, generation=2000 * MS), late_max=200), jump_max=400
)

EXTREMES = (0, 1, 2, 255, 256, 65535, 1 << 31, (1 << 32) - 1, 1 << 61, (1 << 62) - 1, 1 << 62, (1 << 64) - 1)


class Session:
    """A source, two receivers, and packets of theirs to be changed."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0
        self.multicast = random.random() < 0.5
        self.session_id = random.getrandbits(32)
        self.source = ReliableSender(
            self.session_id, SenderSettings(SEND, CLIENTS), random.randbytes(16), 0, self.multicast
        )
        self.receivers: dict[Hashable, ReliableReceiver] = {}
        self.seen: deque[bytes] = deque(maxlen=300)
        self.owed = 0
        self.ended = self.delivered = 0
        for port in (5000, 5001):
            self.join(("10.0.0.2", port))

    def join(self, address: Hashable) -> None:
        """A receiver comes to an address."""
        who = (self.random.getrandbits(64), 1, "fuzz")
        end = ReliableReceiver(
            self.session_id, AT, RECEIVE, self.random, self.now, who, self.multicast, self.random.random() < 0.3
        )
        end.topics(range(self.random.choice([1, 300])), self.now)
        self.receivers[address] = end

    def run(self) -> None:
        """Something happens as it should, and then a changed packet comes."""
        what = self.random.random()
        if what < 0.3 and not self.source.blocked:
            self.source.send(self.random.randbytes(self.random.choice([1, 40, 900])), 1, self.now, self.now)
        elif what < 0.6:
            self.now += self.random.choice([1, MS, 50 * MS, 300 * MS])
            self.source.turn(self.now)
            for end in self.receivers.values():
                end.turn(self.now)
        elif what < 0.6004:
            self.source.end(self.now)
        self.exchange()
        self.strike()
        self.exchange()

    def exchange(self) -> None:
        """What the ends have to send arrives, mostly."""
        for address, end in list(self.receivers.items()):
            for packet in end.take():
                self.seen.append(packet)
                if self.random.random() < 0.9:
                    self.source.receive(packet, address, self.now)
            if end.over:
                self.ended += 1
                self.delivered += end.counts.msgs_rcved
                self.join(address)
        for packet, to in self.source.take():
            self.seen.append(packet)
            if to == STRANGER and to not in self.source.addresses:
                self.owed -= len(packet)
                if self.owed < 0:
                    raise AssertionError(f"more goes to a stranger than came from it: {packet.hex()}")
            for address, end in self.receivers.items():
                if (to is ALL or to == address) and self.random.random() < 0.9:
                    end.receive(packet, AT, self.now)

    def strike(self) -> None:
        """A changed packet comes to one end."""
        packet = self.changed()
        if self.random.random() < 0.5:
            address = self.random.choice([*self.receivers, STRANGER])
            if address == STRANGER:
                self.owed += len(packet)
            self.source.receive(packet, address, self.now)
        else:
            end = self.random.choice(list(self.receivers.values()))
            end.receive(packet, self.random.choice([AT, AT, AT, STRANGER]), self.now)

    def changed(self) -> bytes:
        """A packet of the session with one to three changes."""
        random = self.random
        packet = bytearray(random.choice(self.seen)) if self.seen else bytearray(40)
        for _ in range(random.randint(1, 3)):
            how = random.randrange(6)
            at = random.randrange(len(packet)) if packet else 0
            if how == 0 and packet:
                packet[at] ^= 1 << random.randrange(8)
            elif how == 1:
                del packet[at:]
            elif how == 2:
                packet[at:at] = random.randbytes(random.choice([1, 4, 8, 2000]))
            elif how == 3 and len(packet) > 1:
                packet[1] = random.randrange(11)
            elif how == 4:
                field = random.choice(["!H", "!I", "!Q"])
                number = random.choice(EXTREMES) & ((1 << 8 * struct.calcsize(field)) - 1)
                packet[at : at + struct.calcsize(field)] = struct.pack(field, number)
            elif how == 5 and self.seen:
                packet = packet[:at] + bytearray(random.choice(self.seen))[at:]
        return bytes(packet)

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Of each container how much is in it, and its bound."""
        sending, clients = self.source._send_state, self.source._clients
        window = len(sending.window)
        found = {
            "bytes in the window": (sending.window.bytes, SEND.window_size + 1000),
            "datagrams in the window": (window, SEND.window_size),
            "retransmissions that wait": (len(sending._retransmit_queue), SEND.queue_max),
            "numbers sent again": (len(sending._retransmitted_ns), SEND.window_size),
            "numbers refused": (len(sending._refused_ns), SEND.window_size),
            "datagrams that wait": (len(sending._waiting), 1),
            "clients": (len(clients._clients), CLIENTS.clients_max),
            "packets of the source": (len(self.source._packets_out), 100),
        }
        for client in clients._clients.values():
            listed = len(client.topics) + sum(len(page) for page in (client._pages or {}).values())
            found[f"topics of {client.address}"] = (listed, 2 * CLIENTS.topics_max)
        for address, end in self.receivers.items():
            found[f"packets of {address}"] = (len(end._packets_out), 100)
            if (reception := end._receive_state) is not None:
                most = RECEIVE.receiving.naks.entries_max
                found[f"missing at {address}"] = (len(reception._loss_detector), most)
                for name in ("_timers", "_deadlines", "_ready", "_open_ends"):
                    found[f"{name} at {address}"] = (
                        len(getattr(reception._loss_detector, name)),
                        2 * most + 1024 + 400,
                    )
                found[f"given up at {address}"] = (len(reception._given_up), RECEIVE.receiving.late_max)
        return found


def fuzz(runs: int, seed: int) -> Counter[str]:
    """Runs so many; returns what happened.

    Raises:
        AssertionError: a container outgrows its bound, or a stranger gets too much.
    """
    told: Counter[str] = Counter()
    random = Random(seed)
    session = Session(random)
    for run in range(runs):
        if run % RUNS_OF_A_SESSION == RUNS_OF_A_SESSION - 1:
            told["ended"] += session.ended
            told["delivered"] += session.delivered + sum(end.counts.msgs_rcved for end in session.receivers.values())
            told["malformed"] += session.source.counts.dgrams_dropped_malformed
            told["unproven"] += session.source.counts.dgrams_dropped_unproven
            session = Session(random)
        session.run()
        if run % 20 == 0:
            for name, (size, bound) in session.sizes().items():
                key = f"most {name.partition(' at ')[0].partition(' of (')[0]}"
                told[key] = max(told[key], size)
                if size > bound:
                    raise AssertionError(f"run {run}: {size} {name}, not {bound} at most")
    return told


def main() -> int:
    """Runs many and tells what happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.packets", description="Changed packets into both ends.")
    parser.add_argument("--runs", type=int, default=1_000_000, help="how many packets (default 1000000)")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from (default 1)")
    asked = parser.parse_args()
    began = time.monotonic()
    for name, value in sorted(fuzz(asked.runs, asked.seed).items()):
        print(f"{name}: {value:,}")
    print(f"{asked.runs:,} runs, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
