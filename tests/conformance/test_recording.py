"""What a recorder writes, and a player sends, on every transport in every mode."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ipcbus import MessageType
from ipcbus.archive import Archive
from ipcbus.archive.player import Player
from ipcbus.archive.recorder import Recorder
from ipcbus.wire.properties import pack
from tests.kit.bus import on_all
from tests.kit.recording import accounted, losses, messages, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus import Message
    from tests.kit.bus import Bus

HEADERS = (("key", b"k"), ("trace", b"\0\1"))


def test_what_is_sent_is_recorded_and_sent_again(bus: Bus, tmp_path: Path) -> None:
    """Of every length that the smallest ring takes, with and without headers, in pieces where there are such."""
    longest = 900 if not bus.kind.batches else 30_000
    sent = [bytes([number]) * (number * longest // 60) for number in range(60)]
    source = bus.source(**bus.kind.small() if not bus.kind.source_paced else {})
    archive = Archive.create(tmp_path)
    recorder = Recorder(bus.context("recording"), archive, ["t"], flush_seconds=0.001)
    recorder.start()
    bus.joined(source)
    for number, value in enumerate(sent):
        source.send(value, headers=HEADERS if number % 3 == 0 else None, flush=number % 7 == 0)
        if bus.sequential:
            bus.turn()  # nobody else makes room
    source.flush()
    numbers = source.sequence_number + 1
    bus.until(lambda: recorder.stats.messages == len(sent), "everything to be recorded")
    source.close()
    bus.until(lambda: rows_of(archive)[-1].type == MessageType.EOS, "the end to be recorded")
    found = recorder.stop()
    rows = rows_of(archive)
    assert rows[0].type == MessageType.BOS
    assert [row.value for row in messages(rows)] == sent
    assert [row.block for row in messages(rows)] == [pack(HEADERS) if n % 3 == 0 else b"" for n in range(60)]
    assert accounted(rows, "t", source.source) == (0, numbers, numbers, 0)
    assert losses(rows) == []
    assert (found.lost, found.dropped, found.missed, found.errors) == (0, 0, 0, 0)
    play(bus, archive, sent)


@on_all
def test_what_was_sent_while_no_recorder_was_there_is_told_at_the_end(bus: Bus, tmp_path: Path) -> None:
    """Nothing more comes, so that only the end can tell."""
    source, archive, context = bus.source(), Archive.create(tmp_path), bus.context("recording")
    for sent in (3, 0):
        recorder = Recorder(context, archive, ["t"], flush_seconds=0.001)
        recorder.start()
        bus.joined(source)
        for number in range(sent):
            source.send(bytes([number]), flush=True)
        bus.until(lambda: recorder.stats.messages == sent, "messages to be recorded")  # noqa: B023 - at once
        if sent:
            recorder.stop()
            bus.until(lambda: source.receivers == 0, "the first recorder to leave")
            for _ in range(5):
                source.send(b"unseen", flush=True)
    source.close()
    bus.until(lambda: rows_of(archive)[-1].type == MessageType.EOS, "the end to be recorded")
    assert recorder.stop().missed == 5
    assert accounted(rows_of(archive), "t", source.source) == (0, 8, 3, 5)


def play(bus: Bus, archive: Archive, sent: list[bytes]) -> None:
    """Sends the archive to a receiver, which gets what was sent."""
    got: list[Message] = []
    player = Player(
        archive,
        bus.context("playing"),
        rename={"t": "again"},
        speed=0,
        transport=bus.kind.transport,
        **bus.kind.options,
    )
    bus.receiver("again", got.append)
    bus.joined(player.sources[0])
    if bus.mode == "split":
        # This thread alone calls the receiver back: a play in it would wait for ever where the window is short.
        with ThreadPoolExecutor(1) as thread:
            playing = thread.submit(player.play)
            bus.until(playing.done, "everything to be sent")
        playing.result()
    else:
        player.play()
    bus.until(lambda: sum(message.type is MessageType.DATA for message in got) == len(sent), "everything to come")
    data = [message for message in got if message.type is MessageType.DATA]
    assert [message.data for message in data] == sent
    assert [message.headers for message in data] == [HEADERS if n % 3 == 0 else () for n in range(60)]
