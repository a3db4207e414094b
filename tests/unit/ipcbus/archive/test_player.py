"""What an archive holds goes onto the bus again: which of it, in which order, and when."""

from __future__ import annotations

import datetime
import random
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from ipcbus import ArchiveDamaged, ArchiveMissing, ConfigError, MessageType
from ipcbus.archive import Archive, Limits
from ipcbus.archive.player import Player
from ipcbus.wire.properties import pack
from tests.kit.archives import Watch, lose_in_power_loss, made
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ipcbus import Message
    from ipcbus.archive import LogWriter

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
HEADERS = (("key", b"k"), ("again", b""), ("key", b"\0"))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An empty one."""
    return Archive.create(tmp_path / "archive")


@pytest.fixture
def context(domain: str) -> Iterator[ipcbus.Context]:
    """Sends and receives."""
    with ipcbus.Context(domain=domain) as made:
        yield made


def write(writer: LogWriter, topic: str, values: list[bytes], *, time_ns: int = NOW, type: int = 0) -> None:
    """Rows of a topic, a nanosecond apart."""
    rows, data = made(values, topic=writer.topic(topic), session=writer.session("x"), time_ns=time_ns, type=type)
    writer.append(rows, data)


class Got:
    """What receivers of all topics get."""

    def __init__(self, context: ipcbus.Context) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.headers: list[tuple[tuple[str, bytes], ...]] = []
        context.wildcard_receiver(".*", self._take)

    def _take(self, message: Message) -> None:
        if message.type is MessageType.DATA:
            self.messages.append((message.topic, message.data))
            self.headers.append(message.headers)

    def of(self, topic: str) -> list[tuple[bytes, tuple[tuple[str, bytes], ...]]]:
        """Values and headers of a topic."""
        return [
            (value, headers)
            for (name, value), headers in zip(self.messages, self.headers, strict=True)
            if name == topic
        ]

    def play(self, player: Player) -> list[tuple[str, bytes]]:
        """Lets everything be sent and waits for it."""
        for source in player.sources:
            source.wait_for_receivers(1, 30)
        player.play()
        until(lambda: len(self.messages) == player.sent, f"{player.sent} messages")
        player.close()
        return self.messages


def test_everything_is_sent_in_order_with_its_headers(
    context: ipcbus.Context, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = pack(HEADERS)
    with archive.writer("s") as writer:
        write(writer, "a", [b"one", b"", b"three"])
        write(writer, "b", [b"four"])
        rows, data = made([block + b"five", block], topic=writer.topic("a"), session=writer.session("x"))
        rows["headers"] = len(block)
        rows["length"] -= len(block)
        writer.append(rows, data)
        write(writer, "a", [bytes(100_000)])
        for kind in (MessageType.BOS, MessageType.EOS, MessageType.UNRECOVERABLE_LOSS):
            write(writer, "a", [b""], type=kind)
    got = Got(context)
    player = Player(archive, context, speed=0)
    found = got.play(player)
    # Topics travel in sessions of their own here, so that only the order of each is certain on arrival.
    assert [value for topic, value in found if topic == "a"] == [b"one", b"", b"three", b"five", b"", bytes(100_000)]
    assert [headers for (topic, _), headers in zip(found, got.headers, strict=True) if topic == "a"] == [
        *[()] * 3,
        *[HEADERS] * 2,
        (),
    ]
    assert ("b", b"four") in found
    assert [(target.topic, target.sent, target.bytes) for target in player.targets] == [
        ("a", 6, 100_012),
        ("b", 1, 4),
    ]
    assert (player.loop, player.position, player.rows, player.lost, player.missing) == (1, 10, 10, 1, 0)
    watch = Watch(monkeypatch)
    assert player.longest() == 100_000
    assert ".dat" not in watch.suffixes


@pytest.mark.parametrize("run", [1, 5, 100])
@pytest.mark.parametrize("transport", ["lbtipc", "lbtsmx"])
def test_full_speed_sends_the_same(context: ipcbus.Context, archive: Archive, run: int, transport: str) -> None:
    """Runs of one topic, of equal and of different lengths, with headers and too long for a datagram in between."""
    rng = random.Random(run)
    block = pack(HEADERS)
    with archive.writer("s") as writer:
        topics = [writer.topic(topic) for topic in ("a", "b", "not wanted")]
        values: list[bytes] = []
        rows: list[tuple[int, int]] = []
        while len(values) < 1000:
            number, length = rng.choice(topics), rng.choice([None, 0, 8, 64])
            for _ in range(rng.randint(1, run)):
                size = rng.choice([0, 1, 50, 200]) if length is None else length
                size = 70_000 if rng.random() < 0.01 else size
                headers = len(block) if rng.random() < 0.03 else 0
                values.append(block[:headers] + rng.randbytes(size))
                rows.append((number, headers))
        table, data = made(values, session=writer.session("x"))
        table["topic"], table["headers"] = np.array(rows).T
        table["length"] -= table["headers"]
        writer.append(table, data)
    got = Got(context)
    options: dict[str, object] = {"topics": ["a", "b"], "transport": transport}
    first = Player(archive, context, speed=1e9, **options)
    got.play(first)
    again = Got(context)
    second = Player(archive, context, speed=0, **options)
    again.play(second)
    assert first.sent == second.sent > 500
    for topic in ("a", "b"):
        assert again.of(topic) == got.of(topic)[: len(again.of(topic))]
    assert [(target.sent, target.bytes) for target in first.targets] == [
        (target.sent, target.bytes) for target in second.targets
    ]


def test_logs_are_merged_by_time(context: ipcbus.Context, archive: Archive) -> None:
    for stream, first in (("one", 0), ("two", 5)):
        with archive.writer(stream) as writer:
            for number in range(first, 40, 10):
                write(writer, stream, [bytes([number]), bytes([number + 1])], time_ns=NOW + number)
    got = Got(context)
    assert len(got.play(Player(archive, context, speed=0))) == 16
    merged = [value for _, _, value, _ in Player(archive, context, speed=0)._messages()]
    assert merged == sorted(merged, key=bytes)


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ({}, ["a", "b", "c"]),
        ({"topics": ["c", "a"]}, ["a", "c"]),
        ({"topics": []}, []),
        ({"pattern": "[bc]"}, ["b", "c"]),
        ({"rename": {"a": "z"}}, ["b", "c", "z"]),
        ({"topics": ["a", "b"], "rename": {"a": "b"}}, ["b", "b"]),
        ({"stream": "s"}, ["a", "b", "c"]),
    ],
)
def test_topics_are_chosen_and_renamed(
    context: ipcbus.Context, archive: Archive, choice: dict[str, object], sent: list[str]
) -> None:
    with archive.writer("s") as writer:
        for topic in "abc":
            write(writer, topic, [topic.encode()])
    found = Got(context).play(Player(archive, context, speed=0, **choice))
    assert sorted(topic for topic, _ in found) == sent


@pytest.mark.parametrize(
    ("edges", "sent"),
    [
        ({"start": 2}, [2, 3, 4, 5]),
        ({"end": 2}, [0, 1]),
        ({"start": 1, "end": 4}, [1, 2, 3]),
        ({"start": 4, "end": 1}, []),
        ({"end": 99}, [0, 1, 2, 3, 4, 5]),
        ({"end": datetime.datetime.max.replace(tzinfo=datetime.UTC)}, [0, 1, 2, 3, 4, 5]),
        ({"start": datetime.datetime.min.replace(tzinfo=datetime.UTC)}, [0, 1, 2, 3, 4, 5]),
        ({"start": datetime.datetime.fromtimestamp(1_700_000_003, datetime.UTC)}, [3, 4, 5]),
        ({"end": datetime.datetime.fromtimestamp(1_700_000_003)}, [0, 1, 2]),
        ({"start": 1, "end": datetime.datetime.fromtimestamp(1_700_000_003, datetime.UTC)}, [1, 2]),
    ],
)
def test_a_stretch_is_chosen(
    context: ipcbus.Context, archive: Archive, edges: dict[str, object], sent: list[int]
) -> None:
    with archive.writer("s") as writer:
        for number in range(6):
            write(writer, "a", [bytes([number])], time_ns=NOW + number * SECOND)
    player = Player(archive, context, speed=0, **edges)
    assert [value[0] for _, value in Got(context).play(player)] == sent
    assert player.rows == len(sent)


def test_what_is_recorded_meanwhile_is_not_sent(context: ipcbus.Context, archive: Archive) -> None:
    with archive.writer("s") as writer:
        write(writer, "a", [b"before"])
        player = Player(archive, context, speed=0, loops=2)
        write(writer, "a", [b"after"])
    assert Got(context).play(player) == [("a", b"before")] * 2


def test_headers_that_are_none_are_damage(context: ipcbus.Context, archive: Archive) -> None:
    with archive.writer("s") as writer:
        rows, data = made([b"\x09\x00\x07abcde"], topic=writer.topic("a"), session=writer.session("x"))
        rows["headers"], rows["length"] = 3, 5
        writer.append(rows, data)
    with pytest.raises(ArchiveDamaged, match="header block of a message of topic 'a' is damaged"):
        Player(archive, context, speed=0).play()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"speed": -1}, "speed = -1"),
        ({"speed": float("inf")}, "speed = inf"),
        ({"loops": -1}, "loops = -1"),
        ({"topics": ["a"], "pattern": "a"}, "not both"),
        ({"pattern": "("}, "is an invalid regular expression"),
        ({"start": 7}, "has the offsets 0 to 1, not 7"),
        ({"start": datetime.datetime.min}, "0001-01-01T00:00:00 is not a valid time on this host"),
        ({"no_option": 1}, "no_option"),
    ],
)
def test_bad_arguments_are_refused(
    context: ipcbus.Context, archive: Archive, options: dict[str, object], error: str
) -> None:
    with archive.writer("s") as writer:
        write(writer, "a", [b""])
    with pytest.raises(ConfigError, match=error):
        Player(archive, context, **options)


def test_what_is_not_there_is_told(context: ipcbus.Context, archive: Archive) -> None:
    with pytest.raises(ArchiveMissing, match="has no log yet"):
        Player(archive, context)
    for stream in ("s", "t"):
        with archive.writer(stream) as writer:
            write(writer, "a", [b""])
    with pytest.raises(ArchiveMissing, match="has no stream 'u'"):
        Player(archive, context, stream="u")
    with pytest.raises(ArchiveMissing, match="has no topic 'x', 'y'"):
        Player(archive, context, topics=["a", "x"], rename={"y": "a"})
    with pytest.raises(ConfigError, match="choose one stream of s, t"):
        Player(archive, context, start=0)


def test_an_empty_archive_is_sent_at_once_though_for_ever(context: ipcbus.Context, archive: Archive) -> None:
    archive.writer("s").close()
    player = Player(archive, context, loops=0)
    player.play()
    assert player.sent == 0


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_messages_are_sent_when_they_were_received(context: ipcbus.Context, archive: Archive, speed: float) -> None:
    with archive.writer("s") as writer:
        for number in range(5):
            write(writer, "a", [b""], time_ns=NOW + number * SECOND // 20)
    player = Player(archive, context, speed=speed)
    begin = time.monotonic()
    player.play()
    assert time.monotonic() - begin >= 0.2 / speed - 0.001
    assert player.sent == 5


def test_playing_ends_when_told_to(context: ipcbus.Context, archive: Archive) -> None:
    with archive.writer("s") as writer:
        write(writer, "a", [b"now"])
        write(writer, "a", [b"in a year"], time_ns=NOW + 365 * 86400 * SECOND)
    player = Player(archive, context)
    playing = threading.Thread(target=player.play)
    playing.start()
    until(lambda: player.sent == 1, "the first message")
    player.stop()
    playing.join()
    assert (player.sent, player.loop) == (1, 0)


def test_what_an_archive_has_lost_is_counted(context: ipcbus.Context, archive: Archive, tmp_path: Path) -> None:
    with archive.writer("s", limits=Limits(segment_bytes=4096)) as writer:
        for number in range(10):
            write(writer, "a", [bytes([number]) * 3000])
    middle = sorted(tmp_path.rglob("*.blk"))[4]
    lose_in_power_loss(middle.parent, 4, 5)
    player = Player(archive, context, speed=0)
    assert len(Got(context).play(player)) == 9
    assert player.missing == 1


def test_a_segment_that_somebody_deleted_ends_it(context: ipcbus.Context, archive: Archive, tmp_path: Path) -> None:
    with archive.writer("s", limits=Limits(segment_bytes=4096)) as writer:
        for number in range(3):
            write(writer, "a", [bytes([number]) * 3000])
    sorted(tmp_path.rglob("*.blk"))[1].unlink()
    player = Player(archive, context, speed=0)
    with pytest.raises(ArchiveDamaged, match="neither retention nor a power loss"):
        player.play()
    assert player.sent == 1


def test_damage_ends_it(context: ipcbus.Context, archive: Archive, tmp_path: Path) -> None:
    with archive.writer("s") as writer:
        write(writer, "a", [b"one"])
        write(writer, "a", [b"two"])
    data = next(tmp_path.rglob("*.dat"))
    data.write_bytes(b"onetwO")
    player = Player(archive, context, speed=0)
    with pytest.raises(ArchiveDamaged):
        player.play()
    assert player.sent == 1


def test_memory_stays_bounded(context: ipcbus.Context, archive: Archive) -> None:
    with archive.writer("s") as writer:
        for _ in range(20):
            rows, data = made([bytes(1000)] * 1000, topic=writer.topic("a"), session=writer.session("x"))
            writer.append(rows, data)
    player = Player(archive, context, topics=["a"], speed=0)
    held = {id(value.obj): np.asarray(value.obj).nbytes for _, _, value, _ in player._messages()}
    assert len(held) >= 1
    assert max(held.values()) < 8 << 20
