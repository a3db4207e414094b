"""Topics that begin again while no recorder runs: the next recorder tells them from the topic before."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from ipcbus.archive import Archive
from tests.kit.bus import LBTIPC, LBTRM, LBTRU, RINGS, Kind
from tests.kit.network import isolated_or_skip
from tests.kit.payload import number_of
from tests.kit.peers import Peers
from tests.kit.recording import RecorderProcess, Row, accounted, messages, rows_of
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kit.peers import PeerProcess
    from tests.kit.zygote import Zygote

SHORT = (LBTIPC, LBTRU)
every_kind = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind.name, marks=() if kind in SHORT else pytest.mark.long)
        for kind in (*RINGS, LBTRU, LBTRM)
    ],
)
every_pause = pytest.mark.parametrize(
    "pause_s", [0.05, *(pytest.param(each, marks=pytest.mark.long) for each in (0, 0.3, 0.9))]
)
keeping = pytest.mark.parametrize("keeps", [1, pytest.param(0, marks=pytest.mark.long)], ids=["keeps", "does not keep"])


class Scene:
    """A recorder that is killed, and a publisher that goes on or is started again."""

    def __init__(self, peers: Peers, kind: Kind, folder: Path, keeps: int) -> None:
        self._peers, self._kind, self._keeps, self._folder = peers, kind, keeps, folder
        self.archive = Archive.create(folder / "archive")
        needs = [f'{name} = "{value}"' for name, value in kind.context_options.items() if isinstance(value, str)]
        (folder / "config.toml").write_text("\n".join(["[context]", *needs]))

    def start(self) -> PeerProcess:
        """A publisher, which has another topic on the session too."""
        publisher = self._peers.start(**self._kind.context_options)
        self._source(publisher, "other")
        return publisher

    def begin(self, publisher: PeerProcess) -> str:
        """A source of the topic; its source string."""
        return self._source(publisher, "t", late_join=self._keeps)

    def _source(self, publisher: PeerProcess, topic: str, **options: object) -> str:
        session = {"transport": self._kind.transport, **self._kind.options, **self._kind.id(7)}
        found: str = publisher.do("source", topic=topic, **session, **options)
        return found

    def recorder(self) -> RecorderProcess:
        """The command."""
        return RecorderProcess(
            self._peers.domain, self.archive.path, "t", "--config", str(self._folder / "config.toml")
        )

    def record_and_kill(self, publisher: PeerProcess, count: int) -> None:
        """Records so many messages."""
        with self.recorder() as recorder:
            publisher.do("joined", topic="t")
            publisher.do("send", topic="t", count=count)
            until(lambda: len(messages(rows_of(self.archive))) == count, "all of them")
            recorder.kill()

    def record_to_the_end(self, publisher: PeerProcess) -> int:
        """Records what is there and 100 more messages; returns how many numbers the source has used."""
        with self.recorder() as recorder:
            publisher.do("joined", topic="t")
            publisher.do("send", topic="t", count=100)
            sent: int = publisher.do("end", topic="t")
            until(lambda: rows_of(self.archive)[-1].type == MessageType.EOS, "the end")
            recorder.end()
        return sent


@pytest.fixture
def scene(zygote: Zygote, domain: str, tmp_path: Path, kind: Kind, keeps: int) -> Iterator[Scene]:
    """The processes, in a network of their own for multicast."""
    with contextlib.ExitStack() as stack:
        if kind is LBTRM:
            stack.enter_context(isolated_or_skip())
        own = stack.enter_context(type(zygote)()) if kind is LBTRM else zygote
        peers = Peers(own, domain)
        stack.callback(peers.clear)
        yield Scene(peers, kind, tmp_path, keeps)


def stays(rows: list[Row]) -> list[list[Row]]:
    """The rows of each beginning of a topic."""
    found: list[list[Row]] = []
    for row in rows:
        if row.type == MessageType.BOS:
            found.append([])
        found[-1].append(row)
    return found


def begins_again(scene: Scene, count: int, pause_s: float = 0.0) -> tuple[list[Row], int, int]:
    """A topic ends while no recorder runs, and begins again in its session.

    Returns:
        The rows since, and how many of the messages that were sent since are recorded, and reported lost.
    """
    publisher = scene.start()
    source = scene.begin(publisher)
    scene.record_and_kill(publisher, count)
    threading.Event().wait(pause_s)  # what is under test is that time
    assert publisher.do("end", topic="t") == count
    assert scene.begin(publisher) == source
    publisher.do("send", topic="t", count=300)
    sent = scene.record_to_the_end(publisher)
    before, after = stays(rows_of(scene.archive))
    assert accounted(before, "t", source) == (0, count, count, 0)
    first, following, recorded, lost = accounted(after, "t", source)
    assert (first, following, recorded + lost) == (0, sent, sent)
    return after, recorded, lost


@every_kind
@keeping
@every_pause
def test_a_topic_that_ended_and_began_again_is_recorded_from_its_first_number(
    scene: Scene, kind: Kind, keeps: int, pause_s: float
) -> None:
    after, recorded, lost = begins_again(scene, 1000, pause_s)
    assert lost == 0 if keeps else recorded >= 100  # all that was sent after the recorder had joined
    assert all(number_of(row.value) == row.first for row in messages(after))


@every_kind
@pytest.mark.parametrize("keeps", [0], ids=["does not keep"])
def test_a_topic_that_began_again_and_went_further_than_the_one_before(scene: Scene, kind: Kind, keeps: int) -> None:
    _, recorded, _ = begins_again(scene, 200)
    assert recorded >= 100


@every_kind
@pytest.mark.parametrize("keeps", [1], ids=["keeps"])
@every_pause
def test_a_publisher_that_is_killed_and_started_again_is_recorded_from_its_first_number(
    scene: Scene, kind: Kind, keeps: int, pause_s: float
) -> None:
    publisher = scene.start()
    before = scene.begin(publisher)
    scene.record_and_kill(publisher, 1000)
    threading.Event().wait(pause_s)  # what is under test is that time
    publisher.kill()
    publisher = scene.start()
    source = scene.begin(publisher)
    publisher.do("send", topic="t", count=300)
    sent = scene.record_to_the_end(publisher)
    rows = rows_of(scene.archive)
    assert source != before
    assert accounted(rows, "t", before) == (0, 1000, 1000, 0)
    assert accounted(rows, "t", source) == (0, sent, sent, 0)
