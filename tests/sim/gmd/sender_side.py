"""One sender's topic in a simulated guaranteed delivery, over all its processes, with its account."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.errors import GmdAreaFull
from ipcbus.gmd.delivery_modes import ALL, SOME
from ipcbus.gmd.gmd_events import GmdFailure
from ipcbus.gmd.gmd_settings import SenderSettings, ZeroReceivers
from ipcbus.wire import gmd_messages
from tests.kit.gmd_models import SenderDisk
from tests.sim.gmd.actors import KilledError, SourceProcess
from tests.sim.gmd.ledger import Ledger, Life, Sent
from tests.sim.world import SECOND

if TYPE_CHECKING:
    from random import Random

    from tests.sim.gmd.actors import Channel, ReceiverProcess


class Side:
    """A sender with an area of its own; its process comes and goes."""

    def __init__(self, random: Random, sender: str, topic: str, topic_number: int, modes: dict[str, int]) -> None:
        """Begins with an empty area.

        Args:
            random: draws everything.
            sender: the `gmd_name`.
            topic: the topic.
            topic_number: its number in the sender's sessions.
            modes: the disconnect mode of each receiver.
        """
        self.random, self.topic, self.topic_number, self.modes = random, topic, topic_number, modes
        self.disk = SenderDisk(sender, topic, incarnation=random.getrandbits(63) + 1)
        self.ledger = Ledger()
        self.settings = SenderSettings(
            zero_receivers=random.choice([*[ZeroReceivers.WAIT] * 3, ZeroReceivers.SUCCESS, ZeroReceivers.FAILURE]),
            reconnect_timeout_ns=random.choice([0, 5 * SECOND, 300 * SECOND]),
            confirms=random.random() < 0.5,
            turn_bytes=random.choice([100, 100_000]),
            piece_bytes=random.choice([50, 500, 32_000]),
            names_max=random.choice([2, 10, 10, 10]),
        )
        self.ledger.zero_success = self.settings.zero_receivers is ZeroReceivers.SUCCESS
        self.max_size = random.choice([0, 0, 0, 400])
        self.terms = [(random.choice([SOME, ALL]), random.choice([0, 0, 0, 2 * SECOND, 60 * SECOND])) for _ in range(3)]
        self.process: SourceProcess | None = None
        self.kept: set[int] = set()

    # ------------------------------------------------------------------ processes

    def start(self, now_ns: int, *, writes: int, is_calm: bool) -> bool:
        """Starts the process if it does not run; it may die of it. Returns whether it is new."""
        if self.process is None:
            try:
                self.process = SourceProcess(self, self.settings, now_ns, self.random, writes)
            except KilledError:
                return False
            self.process.area.max_size = 0 if is_calm else self.max_size
            return True
        return False

    def kill(self) -> None:
        """Kills the process; what is in its rings stays readable for a while."""
        process, self.process = self.process, None
        if process is None:
            return
        self.ledger.trace.append(("kill source",))
        for name, mode in self.modes.items():
            if mode == gmd_messages.GMD_SUCCESS:
                self.ledger.name(name).taken_back = True
        for stream in process.streams:
            if self.random.random() < 0.5:
                for _ in range(self.random.randint(0, len(stream.live))):
                    stream.live.pop()

    def begin_life(self, receiver: ReceiverProcess) -> Life:
        """Returns the account of a receiver's process."""
        life = Life(receiver.name, receiver.settings.unrecorded_max)
        life.may_repeat = self.ledger.name(receiver.name).delivered - self.recorded(receiver)
        return life

    def recorded(self, receiver: ReceiverProcess) -> set[int]:
        """Returns the numbers that a receiver's area has."""
        known = receiver.areas[self.topic].recorded.get((self.disk.sender, self.disk.incarnation))
        done = set(range(1, known.floor + 1)) if known else set()
        for first, last in known.ranges if known else ():
            done.update(range(first, last + 1))
        return done

    def notice_lost(self, channel: Channel, now_ns: int) -> None:
        """The process notices that a receiver has left a channel."""
        process = self.process
        if process is None or channel not in process.channels:
            return
        process.channels.remove(channel)
        for receiver in list(process.sender._receivers.values()):
            if receiver.peer is channel and self.modes[receiver.name.name] == gmd_messages.GMD_SUCCESS:
                self.ledger.name(receiver.name.name).taken_back = True
        process.sender.lost_peer(channel, now_ns)

    # ------------------------------------------------------------------ what the application does

    def send(self, now_ns: int, loss: float, doubled: float) -> None:
        """Sends a message."""
        process, random = self.process, self.random
        if process is None:
            return
        data = random.randbytes(random.choice([0, 5, 30]))
        if random.random() < 0.3:
            process.publish(random, 0, data, loss, doubled)
            return
        mode, timeout_ns = terms = random.choice(self.terms)
        if terms != process.sender.current_terms:
            process.sender.terms(mode, timeout_ns)
        expected = set(process.sender.expected)
        try:
            process.sender.places.begin_sending()
            number = process.area.save(mode, 0, now_ns, b"", data)
        except GmdAreaFull:
            return
        if random.random() < 0.05:
            process.area.unsave(number)
            return
        self.ledger.save(number, mode, data, expected)
        self.kept.add(number)
        process.publish(random, number, data, loss, doubled)

    def delete(self) -> None:
        """Deletes a message."""
        if self.process is None or not self.kept:
            return
        number = self.random.choice(sorted(self.kept))
        self.ledger.trace.append(("delete", number))
        self.ledger.sent[number].deleted = True
        self.process.sender.delete(number)

    def forget(self, name: str, now_ns: int) -> None:
        """Forgets a receiver."""
        if self.process is not None:
            self.ledger.trace.append(("forget", name))
            self.ledger.forget(name)
            self.process.sender.forget(name, now_ns)

    def resend(self, now_ns: int) -> None:
        """Sends all failed messages again."""
        if self.process is not None:
            self.process.sender.resend(None, now_ns)

    def take_events(self, now_ns: int, *, decides: bool) -> None:
        """Takes the events of the process, and decides about failures."""
        process = self.process
        while process is not None and (event := process.sender.next_event()) is not None:
            if not isinstance(event, GmdFailure):
                continue
            sent = self._failed(event)
            self.ledger.trace.append(("failure", event.number, event.receiver, event.error_number))
            assert event.message is not None
            assert event.message.data == sent.data
            draw = self.random.random() if decides else 1.0
            if draw < 0.3:
                process.sender.resend(event.number, now_ns)
            elif draw < 0.5:
                sent.deleted = True
                process.sender.delete(event.number)

    def _failed(self, event: GmdFailure) -> Sent:
        sent = self.ledger.sent[event.number]
        sent.failed = True
        if not event.receiver:
            sent.expected.clear()  # it failed before the names were known
        return sent

    # ------------------------------------------------------------------ checks

    def look_at_area(self) -> None:
        """Compares the area with what it was."""
        gone = sorted(number for number in self.kept if number not in self.disk.saved)
        self.kept.difference_update(gone)
        self.ledger.release(gone)
        if self.process is not None:
            self.ledger.registered(set(self.process.sender.expected))
            assert self.process.sender.pending == len(self.kept)
