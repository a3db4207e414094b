"""An archive of a simulated session: a recorder that writes late, misses stretches, and stops; and its readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.wire.control_messages import NUMBER_MAX
from tests.kit.older_messages import OlderMessage, piece_of
from tests.sim.world import MS

if TYPE_CHECKING:
    from random import Random

    from ipcbus.recovery.older_messages import OlderPiece
    from tests.sim.accounts import Sent
    from tests.sim.recovery.world import RecoveryStorm


class SimulatedRecorder:
    """Records the topics of a session."""

    def __init__(self, storm: RecoveryStorm, random: Random) -> None:
        self._storm, self._random = storm, random
        self.rows: dict[int, list[OlderMessage]] = {topic.number: [] for topic in storm.topics}
        self._reached = dict.fromkeys(self.rows, 0)
        self._holes = random.choice([0, 0, 0.05, 0.3])
        self._missed = 0
        self._step_ns = random.choice([1, 10, 100]) * MS
        self._messages = random.choice([1, 5, 1000])
        self._stops_ns = random.choice([None, None, random.randint(0, 300) * MS])
        self.writes = True
        self.complete = not self._holes and self._stops_ns is None
        begin_ns = random.choice([0, 0, 50 * MS])
        self.complete = self.complete and not begin_ns
        storm.world.after(begin_ns, self._record)

    def _record(self) -> None:
        now_ns = self._storm.world.now_ns
        if self._stops_ns is not None and now_ns >= self._stops_ns:
            self.writes = False
        if not self.writes or self._storm.over:
            return
        for number in self.rows:
            for _ in range(self._messages):
                if not self._record_one(number, now_ns):
                    break
        self._storm.world.after(self._step_ns, self._record)

    def finish(self) -> None:
        """Records the rest, and stops."""
        for number in self.rows:
            while self.writes and self._record_one(number, self._storm.world.now_ns):
                pass
        self.writes = False

    def _record_one(self, number: int, now_ns: int) -> bool:
        topic, reached = self._storm.topics[number], self._reached[number]
        sent: Sent | None = topic.sent.get(reached)
        if sent is None or sent.last >= self._storm.retentions[number].published:
            return False
        self._reached[number] = sent.last + 1
        if not self._missed and self._random.random() < self._holes:
            self._missed = self._random.randint(1, 10)
        if self._missed:
            self._missed -= 1
        else:
            data = sent.block + sent.payload
            self.rows[number].append(OlderMessage(sent.first, sent.last, 0, bool(sent.block), data, now_ns))
        return True


class SimulatedRecording:
    """What one recovery reads of it."""

    faults = 0

    def __init__(self, recorder: SimulatedRecorder, topic: int, random: Random) -> None:
        self._recorder, self._topic, self._random = recorder, topic, random
        self._last = self._rows[-1].last if self._rows else -1  # later ones may be newer than what the source says
        self._most = random.choice([1, 3, 256])
        self._searches = random.choice([0, 0, 0.5, 0.9])
        self._known = -1, 0

    @property
    def _rows(self) -> list[OlderMessage]:
        return self._recorder.rows[self._topic]

    def begin(self, next_sequence: int, wanted: int) -> int | None:
        """The first number."""
        del wanted
        assert self._last < next_sequence
        if self._random.random() < self._searches:
            return None
        return self._rows[0].first if self._last >= 0 else NUMBER_MAX

    def read(self, first: int, last: int) -> OlderPiece | None:
        """The next messages."""
        if (first, len(self._rows)) != self._known and self._random.random() < self._searches:
            self._known = first, len(self._rows)  # nothing new has come, so nothing is searched again
            return None
        return piece_of(self._topic, self._rows, first, last, self._most, grows=self._recorder.writes)
