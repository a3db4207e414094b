"""Receivers take from an archive what the source does not keep any more: `history_archive`."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageFlag, MessageType
from ipcbus.archive import Archive, Recorder, recorded_history
from tests.conformance.test_late_join import Reader, send
from tests.kit.bus import LBTIPC, LBTRU, LBTSMX, RECEIVER_PACED, Bus, Kind
from tests.kit.forms import FORMS, CallbackTaker, Taker
from tests.kit.payload import body
from tests.kit.recording import RecorderProcess, messages, rows_of, written
from tests.kit.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

FEW = {"late_join": 1, "retransmit_retention_size_limit": 64 << 10}
"""A source that keeps the last 64 KiB: 682 messages of 64 bytes."""
MANY = 3000
embedded = pytest.mark.parametrize("mode", ["embedded"])
only_ipc = pytest.mark.parametrize("kind", [LBTIPC], ids=["lbtipc"])


@pytest.fixture(params=RECEIVER_PACED, ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> Kind:
    """A ring."""
    found: Kind = request.param
    return found


@embedded
@only_ipc
@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.name))
def test_every_form_of_receiving_gets_the_archive_then_the_source_then_what_is_live(
    bus: Bus, tmp_path: Path, form: type[Taker]
) -> None:
    source = bus.source(context=bus.context("serving"), **FEW)
    with Recorder(bus.context("recording"), Archive.create(tmp_path), ["t"], stream="s") as recorder:
        source.wait_for_receivers(1, 30)
        source.send_many([body(number) for number in range(MANY)], flush=True)
        written(recorder, MANY)
        taker = form(bus, history_archive=str(tmp_path))
        assert taker.data(MANY) == [body(number) for number in range(MANY)]
        source.send_many([body(MANY + number) for number in range(100)], flush=True)
        assert taker.data(MANY + 100) == [body(number) for number in range(MANY + 100)]


def record(bus: Bus, path: Path, sent: int, **options: object) -> tuple[ipcbus.Source, int]:
    """A source of which an archive has what it sent, and where it has got to."""
    source = bus.source(context=bus.context("sending", mode="embedded"), **options)
    with Recorder(bus.context("recording", mode="embedded"), Archive.create(path), ["t"], stream="s"):
        source.wait_for_receivers(1, 30)
        used = send(bus, source, sent)
        until(lambda: _last(path) == used - 1, "the last message")
    until(lambda: source.receivers == 0, "the end of the recorder")
    return source, used


def _last(path: Path) -> int:
    return max((row.last for row in rows_of(Archive(path))), default=-1)


def test_all_are_flagged_and_each_number_comes_once(bus: Bus, tmp_path: Path) -> None:
    source, sent = record(bus, tmp_path, MANY, **FEW)
    late = Reader(bus, history_archive=str(tmp_path))
    late.account(sent)
    assert late.ledger.lost == 0
    assert late.recovered() == list(range(sent))
    sent = send(bus, source, 500)
    late.account(sent)
    assert len(late.recovered()) == MANY


@embedded
@pytest.mark.parametrize("kind", [LBTRU], ids=["lbtru"])
def test_it_works_over_udp_for_a_source_that_keeps_messages(bus: Bus, tmp_path: Path) -> None:
    source, sent = record(bus, tmp_path, MANY, **FEW)
    late = Reader(bus, history_archive=str(tmp_path))
    late.account(sent)
    sent = send(bus, source, 500)
    late.account(sent)
    assert late.ledger.lost == 0
    assert late.recovered()[:MANY] == list(range(MANY))


@embedded
def test_the_recorder_goes_on_while_live_messages_come(bus: Bus, tmp_path: Path) -> None:
    """The receiver is behind all the time, and the source keeps little."""
    source = bus.source(**FEW)
    with RecorderProcess(bus.domain, tmp_path, "t"):
        source.wait_for_receivers(1, 30)
        sent = send(bus, source, 5000)
        late = Reader(bus, history_archive=str(tmp_path))
        sent = send(bus, source, 20_000)
        late.account(sent)
        assert late.ledger.lost == 0
        later = Reader(bus, context=late.context, history_archive=str(tmp_path))
        sent = send(bus, source, 5000)
        for each in (late, later):
            each.account(sent)
            assert each.ledger.lost == 0


@embedded
@pytest.mark.parametrize("most", [10, 682, 1000, 2500, 10_000])
def test_history_counts_over_both(bus: Bus, tmp_path: Path, most: int) -> None:
    _, sent = record(bus, tmp_path, MANY, **FEW)
    late = Reader(bus, history=most, history_archive=str(tmp_path))
    first = max(0, sent - most)
    late.account(sent, first=first)
    assert late.recovered() == list(range(first, sent))


@embedded
def test_a_source_that_keeps_nothing_has_an_archive(bus: Bus, tmp_path: Path) -> None:
    source, sent = record(bus, tmp_path, MANY)
    late = Reader(bus, history_archive=str(tmp_path))
    late.account(sent)
    assert late.recovered() == list(range(sent))
    sent = send(bus, source, 100)
    late.account(sent)
    assert late.ledger.lost == 0
    without = Reader(bus)
    bus.joined(source, 2)
    sent = send(bus, source, 100)
    without.account(sent, first=sent - 100)


@embedded
def test_what_neither_has_is_lost_behind_the_first_message_and_nothing_before_it(bus: Bus, tmp_path: Path) -> None:
    """The archive has the numbers 500 to 999, the source the last 682 of 5000."""
    source = bus.source(context=bus.context("sending"), **FEW)
    send(bus, source, 500)
    with Recorder(bus.context("recording"), Archive.create(tmp_path), ["t"], limits=None) as recorder:
        bus.joined(source)
        send(bus, source, 500)
        until(lambda: _last(tmp_path) == 999, "the last message")
        recorder.stop()
    path = tmp_path / "part"
    with Recorder(bus.context("again"), Archive.create(path), ["u"]):
        pass
    sent = send(bus, source, 4000)
    late = Reader(bus, history_archive=str(tmp_path))
    first = messages(rows_of(Archive(tmp_path)))[0].first
    late.account(sent, first=first)
    kept = [number for number in late.recovered() if number > 999]
    assert late.recovered() == [*range(first, 1000), *range(kept[0], sent)]
    assert late.ledger.lost == kept[0] - 1000


@embedded
@only_ipc
@pytest.mark.parametrize("pattern", [False, True], ids=["topics", "pattern"])
def test_a_recorder_of_other_topics_is_not_waited_for(bus: Bus, tmp_path: Path, pattern: bool) -> None:
    source, _ = record(bus, tmp_path, 500)
    with Recorder(
        bus.context("again"), Archive.create(tmp_path), ["u.*" if pattern else "u"], pattern=pattern, stream="s"
    ):
        sent = send(bus, source, 100)
        late = Reader(bus, history_archive=str(tmp_path), retransmit_request_message_timeout=3_600_000)
        late.account(sent)
        assert late.ledger.lost == 100


@embedded
@only_ipc
def test_a_recorder_that_has_joined_a_silent_topic_again_is_not_waited_for(bus: Bus, tmp_path: Path) -> None:
    source, _ = record(bus, tmp_path, 500)
    sent = send(bus, source, 100)
    with Recorder(bus.context("again"), Archive.create(tmp_path), ["t"], stream="s"):
        bus.joined(source)
        late = Reader(bus, history_archive=str(tmp_path), retransmit_request_message_timeout=3_600_000)
        late.account(sent)
        assert late.ledger.lost == 100


@embedded
@only_ipc
def test_fragments_and_headers_come_from_the_archive_as_they_were(bus: Bus, tmp_path: Path) -> None:
    source = bus.source(context=bus.context("sending"), **FEW)
    sizes = [10, 8000, 20_000, 300_000, 16]
    with Recorder(bus.context("recording"), Archive.create(tmp_path), ["t"]):
        bus.joined(source)
        for number, size in enumerate(sizes * 4):
            source.send(bytes([number]) * size, headers=[("n", b"%d" % number)] if number % 2 else None)
        source.flush()
        used = source.sequence_number + 1
        until(lambda: _last(tmp_path) == used - 1, "the last message")
    taker = CallbackTaker(bus, history_archive=str(tmp_path))
    assert taker.data(len(sizes) * 4) == [bytes([number]) * size for number, size in enumerate(sizes * 4)]
    for ordered in (-1, 0):
        late = bus.context("late")
        got: list[ipcbus.Message] = []
        late.receiver("t", got.append, ordered_delivery=ordered, history_archive=str(tmp_path))
        while sum(map(_numbers, got)) < used:
            bus.turn()
        assert not [message for message in got if message.type in (4, 5)]


def _numbers(message: ipcbus.Message) -> int:
    found = message.sequence_number - message.first_sequence_number + 1
    return found if message.type is MessageType.DATA else 0


@embedded
def test_a_wildcard_receiver_takes_each_topic_from_it(bus: Bus, tmp_path: Path) -> None:
    sending = bus.context("sending")
    sources = [bus.source(topic, sending, **FEW) for topic in ("a", "b")]
    with Recorder(bus.context("recording"), Archive.create(tmp_path), ["a|b"], pattern=True):
        for source in sources:
            bus.joined(source)
        for number in range(MANY):
            for source in sources:
                source.send(body(number))
        for source in sources:
            source.flush()
        until(lambda: len(messages(rows_of(Archive(tmp_path)))) == 2 * MANY, "all of them")
    got: dict[str, list[bytes]] = {"a": [], "b": []}
    bus.context("late").wildcard_receiver(
        "[ab]",
        lambda m: got[m.topic].append(m.data) if m.type is MessageType.DATA else None,
        history_archive=str(tmp_path),
    )
    bus.until(lambda: sum(map(len, got.values())) == 2 * MANY, "all of both")
    assert got["a"] == got["b"] == [body(number) for number in range(MANY)]


@embedded
def test_a_source_that_ends_while_its_past_is_read_costs_nothing_that_the_archive_has(bus: Bus, tmp_path: Path) -> None:
    source, sent = record(bus, tmp_path, 20_000, **FEW)
    late = Reader(bus, history_archive=str(tmp_path))
    bus.joined(source)
    source.close()
    bus.until(lambda: late.books.ended, "the end")
    assert late.ledger.wrong == []
    assert (late.ledger.delivered, late.ledger.lost) == (sent, 0)


@embedded
def test_an_archive_of_another_session_is_not_used(bus: Bus, tmp_path: Path) -> None:
    _, _ = record(bus, tmp_path, 100, **FEW)
    for context in bus.contexts:
        context.close()
    bus.contexts.clear()
    source = bus.source(context=bus.context("other"), **FEW)
    sent = send(bus, source, 50)
    late = Reader(bus, history_archive=str(tmp_path))
    late.account(sent)
    assert late.recovered() == list(range(50))


@embedded
@only_ipc
def test_a_topic_that_began_again_in_its_session_gets_its_own_rows_only(bus: Bus, tmp_path: Path) -> None:
    sending = bus.context("sending")
    keeps_session = bus.source("other", sending, **bus.kind.id(20100))
    source = bus.source("t", sending, **FEW, **bus.kind.id(20100))
    assert source.source == keeps_session.source
    path = str(tmp_path)
    for count in (2000, 1000):
        with Recorder(bus.context("recording"), Archive.create(tmp_path), ["t"], stream="s") as recorder:
            bus.joined(source)
            send(bus, source, count)
            written(recorder, count)
        if count == 2000:
            source.close()  # no recorder sees its end
            source = bus.source("t", sending, **FEW, **bus.kind.id(20100))
    late = Reader(bus, history_archive=path)
    late.account(1000)
    assert late.ledger.lost == 0


def begin_again(bus: Bus, source: ipcbus.Source, sending: ipcbus.Context, count: int) -> ipcbus.Source:
    """Sends the first messages of a topic, closes it and sends others on the next source of the topic."""
    for number in range(count):
        source.send(b"first %d" % number)
    source.flush()
    source.close()
    again = bus.source("t", sending, **bus.kind.id(20100))
    assert again.source == source.source
    bus.joined(again)
    for number in range(count):
        again.send(b"second %d" % number)
    again.flush()
    return again


def all_of(bus: Bus, path: Path, count: int) -> list[bytes]:
    """What a receiver gets of this many numbers."""
    got: list[ipcbus.Message] = []
    bus.context("late").receiver("t", got.append, history_archive=str(path))
    bus.until(lambda: sum(map(_numbers, got)) == count, "all numbers")
    return [message.data for message in got if message.type is MessageType.DATA]


@embedded
@pytest.mark.parametrize("count", [100, 3000])
def test_a_topic_that_began_again_at_once_gets_its_own_rows_only(bus: Bus, tmp_path: Path, count: int) -> None:
    sending = bus.context("sending")
    bus.source("other", sending, **bus.kind.id(20100))  # the session goes on
    source = bus.source("t", sending, **bus.kind.id(20100))
    with Recorder(bus.context("recording"), Archive.create(tmp_path), ["t"], stream="s") as recorder:
        bus.joined(source)
        begin_again(bus, source, sending, count)
        written(recorder, 2 * count)
        assert all_of(bus, tmp_path, count) == [b"second %d" % number for number in range(count)]


@embedded
@only_ipc
def test_a_recorder_that_has_only_the_topic_before_it_began_again_is_waited_for(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes what it has when the receiver is there."""
    monkeypatch.setattr(recorded_history, "_BEHIND_S", 3600)
    sending, path = bus.context("sending"), str(tmp_path)
    bus.source("other", sending, **bus.kind.id(20100))
    source = bus.source("t", sending, **bus.kind.id(20100))
    archive, recording = Archive.create(tmp_path), bus.context("recording")
    with Recorder(recording, archive, ["t"], stream="s") as recorder:
        bus.joined(source)
        source.send(b"first", flush=True)
        written(recorder, 1)
    until(lambda: source.receivers == 0, "the end of the recorder")
    with Recorder(recording, archive, ["t"], stream="s", flush_seconds=60) as recorder:
        bus.joined(source)
        again = begin_again(bus, source, sending, 100)
        got: list[ipcbus.Message] = []
        bus.context("late").receiver("t", got.append, history_archive=path)
        bus.joined(again, 2)
        bus.until(lambda: recorder.stats.buffered_bytes > 0, "the messages of the recorder")
    bus.until(lambda: sum(map(_numbers, got)) == 100, "all numbers")
    found = [message.data for message in got if message.type is MessageType.DATA]
    assert found == [b"second %d" % number for number in range(100)]


def test_a_path_without_an_archive_is_refused(bus: Bus, tmp_path: Path) -> None:
    context = bus.context("late")
    with pytest.raises(ipcbus.ArchiveMissing, match="is not an archive; give the directory"):
        context.receiver("t", history_archive=str(tmp_path / "nowhere"))
    with pytest.raises(ipcbus.ConfigError, match="zero byte"):
        context.receiver("t", history_archive="a\0b")
    (tmp_path / "archive.json").write_text("{")
    with pytest.raises(ipcbus.ArchiveDamaged):
        context.wildcard_receiver("t", history_archive=str(tmp_path))
    assert not context._receivers


@embedded
def test_damage_is_a_loss_with_its_numbers(bus: Bus, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, sent = record(bus, tmp_path, MANY, **FEW)
    (data,) = tmp_path.rglob("*.dat")
    raw = bytearray(data.read_bytes())
    raw[1000 * 64] ^= 1
    data.write_bytes(raw)
    late = Reader(bus, history_archive=str(tmp_path))
    late.account(sent)
    assert 0 < late.ledger.lost < MANY
    assert "cannot take all messages from the archive" in caplog.text


@embedded
def test_an_archive_that_vanishes_costs_only_what_it_had(bus: Bus, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    source, sent = record(bus, path, MANY, **FEW)
    context = bus.context("late")
    context.receiver("elsewhere", history_archive=str(path))
    shutil.move(path, tmp_path / "away")
    with pytest.raises(ipcbus.ArchiveMissing):
        Reader(bus, history_archive=str(path))
    (tmp_path / "away").rename(path)
    for file in path.rglob("*.idx"):
        file.unlink()
    late = Reader(bus, history_archive=str(path))
    bus.joined(source)
    sent = send(bus, source, 10)
    bus.until(lambda: late.ledger.next == sent, "the last message")
    assert late.ledger.wrong == []
    assert late.ledger.delivered >= 10 + 600


@embedded
@pytest.mark.parametrize("kind", [LBTIPC, LBTSMX], ids=lambda kind: str(kind.name))
def test_each_of_two_recorders_fills_the_holes_of_the_other(bus: Bus, tmp_path: Path, kind: Kind) -> None:
    source = bus.source(context=bus.context("sending"), retransmit_retention_size_limit=64 << 10)
    recording = bus.context("recording")
    archive = Archive.create(tmp_path)
    sent = 0
    for stream in ("a", "b", "a", "b"):
        with Recorder(recording, archive, ["t"], stream=stream) as recorder:
            bus.joined(source)
            sent = send(bus, source, 1000)
            written(recorder, 1000)
        until(lambda: source.receivers == 0, "its end")
    late = Reader(bus, history_archive=str(tmp_path))
    late.account(sent)
    assert late.ledger.lost == 0
    assert all(flags & MessageFlag.LATE_JOIN for flags in late.flags.values())
