"""GMD areas in files: sources and receivers go on after a restart, whichever of them it was."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from ipcbus.gmd.area_folders import area_folder
from ipcbus.gmd.area_inspection import inspect
from ipcbus.gmd.receiver_area import Acknowledged
from ipcbus.storage.files import Disk
from tests.kit.bus import LBTIPC, LBTRU, LBTSMX, Bus, Kind
from tests.kit.guaranteed import Named, acknowledged, expected, send, source
from tests.kit.payload import body

if TYPE_CHECKING:
    from pathlib import Path

embedded = pytest.mark.parametrize("mode", ["embedded"])
only_ipc = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))


@pytest.fixture(params=[LBTIPC, LBTSMX, LBTRU], ids=lambda kind: str(kind.name))
def kind(request: pytest.FixtureRequest) -> Kind:
    """A transport."""
    found: Kind = request.param
    return found


@pytest.fixture
def files(tmp_path: Path) -> dict[str, object]:
    """Options for areas in files."""
    return {"ipc_gmd_type": "file", "ipc_gmd_directory": str(tmp_path / "gmd")}


def test_a_source_goes_on_where_it_stopped(bus: Bus, files: dict[str, object]) -> None:
    sending = source(bus, **files)
    send(bus, sending, 50)
    sending.close()
    again = source(bus, **files)
    assert (again.gmd_sequence_number, again.gmd_num_pending) == (50, 50)
    named = Named(bus, **files)
    named.until(50)
    send(bus, again, 50)
    named.until(100)
    acknowledged(bus, again)
    named.ledger.balanced(1, 100)
    assert named.ledger.again >= set(range(1, 51))


def test_pending_messages_go_to_a_receiver_that_stays(bus: Bus, files: dict[str, object]) -> None:
    named = Named(bus, ipc_gmd_auto_ack=False, **files)
    sending = source(bus, **files)
    expected(bus, sending, "receiver")
    send(bus, sending, 20)
    named.until(20)
    sending.close()
    again = source(bus, **files)
    expected(bus, again, "receiver")
    send(bus, again, 10)
    named.until(30)
    named.ledger.balanced(1, 30)  # what the application has and has not acknowledged does not come twice


def test_a_receiver_goes_on_where_it_stopped(bus: Bus, files: dict[str, object]) -> None:
    sending = source(bus, **files)
    first = Named(bus, **files)
    expected(bus, sending, "receiver")
    send(bus, sending, 30)
    first.until(30)
    acknowledged(bus, sending)
    first.receiver.close()
    send(bus, sending, 30)
    second = Named(bus, **files)
    second.until(30)
    send(bus, sending, 30)
    second.until(60)
    acknowledged(bus, sending)
    first.ledger.balanced(1, 30)
    second.ledger.balanced(31, 90)


def test_both_go_on(bus: Bus, files: dict[str, object]) -> None:
    sending = source(bus, **files)
    first = Named(bus, **files)
    expected(bus, sending, "receiver")
    send(bus, sending, 30)
    first.until(30)
    acknowledged(bus, sending)
    first.receiver.close()
    send(bus, sending, 30)
    sending.close()
    again, second = source(bus, **files), Named(bus, **files)
    second.until(30)
    send(bus, again, 30)
    second.until(60)
    acknowledged(bus, again)
    second.ledger.balanced(31, 90)
    assert second.ledger.again >= set(range(31, 61))


@embedded
def test_two_sources_cannot_share_an_area(bus: Bus, files: dict[str, object]) -> None:
    sending = source(bus, **files)
    with pytest.raises(ipcbus.GmdAreaLocked):
        source(bus, **files)
    sending.close()
    source(bus, **files).close()


@embedded
def test_a_fresh_area_forgets(bus: Bus, files: dict[str, object]) -> None:
    sending = source(bus, **files)
    send(bus, sending, 5)
    sending.close()
    again = source(bus, gmd_fresh=True, **files)
    assert (again.gmd_sequence_number, again.gmd_num_pending) == (0, 0)
    named = Named(bus, **files)
    send(bus, again, 3)
    named.until(3)
    acknowledged(bus, again)
    named.ledger.balanced(1, 3)


@embedded
def test_messages_that_stay_in_the_area_are_not_said_to_be_lost(
    bus: Bus, files: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    sending = source(bus, **files)
    sending.send(body(1))
    sending.send(body(2, 20_000) if sending.source.startswith("LBT-IPC") else body(2))  # there it has fragments
    with sending.acquire(64) as place:
        place[:] = body(3, 64)
    with caplog.at_level(logging.INFO, "ipcbus"):
        sending.close()
    assert sending.unheard == 0
    assert "no receiver got the messages" not in caplog.text
    assert "3 guaranteed messages that are not acknowledged; they stay in the GMD area" in caplog.text
    caplog.clear()
    again = source(bus, **files)
    for number in (4, 5):
        again.send(body(number), delivery_mode="best_effort")
        again.send(body(number))
    again.close()
    assert again.unheard == 2
    assert f"'t' (2 on {again.source})" in caplog.text


@embedded
@only_ipc
@pytest.mark.parametrize("durability", ["process", "each"])
def test_a_receiver_syncs_what_it_acknowledges(
    bus: Bus, files: dict[str, object], durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    sync = os.fdatasync

    def synced(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith("acknowledged"):
            kept.append(sending._gmd().sender.acknowledgements)
        sync(fd)

    sending, named = source(bus), Named(bus, gmd_durability=durability, **files)
    expected(bus, sending, "receiver")
    monkeypatch.setattr(os, "fdatasync", synced)
    for number in range(1, 6):
        send(bus, sending, 1)
        acknowledged(bus, sending)
        assert kept[:number] == (list(range(number)) if durability == "each" else [])
    named.ledger.balanced(1, 5)


@embedded
@only_ipc
@pytest.mark.parametrize("by_hand", [False, True], ids=["auto", "by hand"])
def test_the_window_of_duplicates_holds_for_event_queues(bus: Bus, files: dict[str, object], by_hand: bool) -> None:
    queue, context, most, done = ipcbus.EventQueue(), bus.context("receiving"), [0], threading.Event()

    def note(message: ipcbus.Message) -> None:
        if message.gmd_sequence_number:
            (area, _) = next(iter(context._receiving_sessions.receptions._named.values()))._topics["t"]
            (stream,) = [area.known(*each) for each in area.streams()] or [Acknowledged(0, [])]
            most[0] = max(most[0], message.gmd_sequence_number - stream.floor)
            if by_hand:
                message.ack()

    context.receiver(
        "t",
        note,
        event_queue=queue,
        gmd_name="receiver",
        ipc_gmd_auto_ack=not by_hand,
        gmd_unrecorded_maximum=20,
        **files,
    )
    sending = source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 200)
    bus.until(lambda: len(queue) >= 200, "messages in the queue")

    def dispatch() -> None:
        while queue.dispatch(0):
            pass
        done.set()

    dispatching = threading.Thread(target=dispatch)
    with context._event_loop.driver_lock():  # the context records nothing meanwhile
        urgent = context._event_loop._urgent
        dispatching.start()
        while not done.wait(0.001) and context._event_loop._urgent == urgent:
            pass
    dispatching.join()
    assert most[0] <= 20
    acknowledged(bus, sending)
    queue.close()


@embedded
@only_ipc
def test_figures_of_a_source_and_of_a_receiver(bus: Bus, files: dict[str, object]) -> None:
    sending = source(bus, **files)
    send(bus, sending, 3)
    early = sending.gmd_statistics()
    assert (early.pending, early.acknowledged, early.resent, early.failures) == (3, 0, 0, 0)
    assert early.area_bytes > 3 * 64
    assert early.oldest is not None
    assert early.oldest >= 0
    named = Named(bus, **files)
    named.until(3)
    acknowledged(bus, sending)
    late = sending.gmd_statistics()
    assert (late.pending, late.area_bytes, late.oldest, late.acknowledged, late.resent) == (0, 0, None, 3, 3)
    assert (late.refused, late.ignored) == (0, 0)
    sending.close()
    found = named.receiver.gmd_statistics()
    assert (found.resent, found.duplicates, found.failing) == (3, 0, "")
    with pytest.raises(ipcbus.ConfigError, match="gmd_name"):
        bus.receiver("t").gmd_statistics()


@embedded
@only_ipc
def test_a_source_whose_area_is_removed_says_so_and_drains(
    bus: Bus, files: dict[str, object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sending, named = source(bus, **files), Named(bus, ipc_gmd_auto_ack=False)
    expected(bus, sending, "receiver")
    send(bus, sending, 20)
    named.until(20)
    shutil.rmtree(tmp_path / "gmd")
    bus.until(lambda: "removed while it was open" in caplog.text, "the news, though nothing is sent")
    with pytest.raises(ipcbus.GmdError, match="close the source and make it again"):
        sending.send(body(21))
    (reception,) = named.context._receiving_sessions.receptions._all
    for number in range(1, 21):
        reception.gate.acknowledge(number)
    acknowledged(bus, sending)
    named.ledger.balanced(1, 20)
    sending.close()
    again = source(bus, **files)
    expected(bus, again, "receiver")
    send(bus, again, 5)
    named.until(25)
    assert named.ledger.numbers[20:] == [1, 2, 3, 4, 5]


@embedded
@only_ipc
def test_the_files_show_what_is_acknowledged_though_nothing_is_sent(
    bus: Bus, files: dict[str, object], tmp_path: Path
) -> None:
    sending, _ = source(bus, **files), Named(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 20)
    acknowledged(bus, sending)

    def pending() -> int:
        recovery = inspect(Disk(), area_folder(tmp_path / "gmd", "sender", "t", "source")).recovery
        return recovery.index.count if recovery is not None else -1

    bus.until(lambda: pending() == 0, "the releases in the files")


@embedded
@only_ipc
def test_a_receiver_whose_area_is_removed_says_so(
    bus: Bus, files: dict[str, object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sending, named = source(bus), Named(bus, **files)
    expected(bus, sending, "receiver")
    shutil.rmtree(tmp_path / "gmd")
    bus.until(lambda: "removed while it was open" in caplog.text, "the news")
    assert "close the receiver and make it again" in caplog.text
    named.receiver.close()
    again = Named(bus, **files)
    send(bus, sending, 5)
    again.until(5)
    acknowledged(bus, sending)
    again.ledger.balanced(1, 5)


@embedded
@pytest.mark.parametrize("durability", ["process", "group", "each"])
def test_messages_can_be_waited_for_on_the_disk(bus: Bus, files: dict[str, object], durability: str) -> None:
    sending = source(bus, gmd_durability=durability, **files)
    send(bus, sending, 20)
    sending.wait_durable(timeout=20)
    sending.wait_durable(3, timeout=0)
    with pytest.raises(ValueError, match="the last message has number 20"):
        sending.wait_durable(21)
    sending.close()
    again = source(bus, gmd_durability=durability, **files)
    assert again.gmd_num_pending == 20


@embedded
def test_failed_messages_are_failed_after_a_restart_too(bus: Bus, files: dict[str, object]) -> None:
    events: list[ipcbus.SourceEvent] = []
    options = {"gmd_name": "sender", "delivery_mode": "all", "gmd_zero_receivers": "failure", **files}
    sending = bus.source("t", on_event=events.append, **options)  # type: ignore[arg-type]
    send(bus, sending, 2)
    bus.until(lambda: len(events) == 2, "failures")
    sending.close()
    again = bus.source("t", on_event=events.append, **options)  # type: ignore[arg-type]
    bus.until(lambda: len(events) == 4, "failures again")
    assert [event.gmd_sequence_number for event in events] == [1, 2, 1, 2]
    named = Named(bus, **files)
    expected(bus, again, "receiver")
    assert again.gmd_resend() == 2
    named.until(2)
    acknowledged(bus, again)


@embedded
def test_a_source_in_memory_that_closes_says_what_is_gone(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    sending = source(bus)
    send(bus, sending, 3)
    sending.close()
    assert "closes with 3 guaranteed messages that are not acknowledged" in caplog.text


@embedded
def test_rows_and_places_in_the_ring_are_guaranteed_too(bus: Bus, files: dict[str, object]) -> None:
    named, sending = Named(bus, **files), source(bus, **files)
    expected(bus, sending, "receiver")
    sending.send_many([body(1), body(2)])
    sending.send_many(np.frombuffer(body(3) + body(4), np.uint8).reshape(2, 64), delivery_mode="some")
    with sending.acquire(64) as buf:
        buf[:] = body(5)
    named.until(5)
    acknowledged(bus, sending)
    named.ledger.balanced(1, 5)


@embedded
def test_a_fork_leaves_the_area_to_the_parent(bus: Bus, files: dict[str, object]) -> None:
    named, sending = Named(bus, **files), source(bus, **files)
    expected(bus, sending, "receiver")
    send(bus, sending, 5)
    named.until(5)
    child = os.fork()
    if child == 0:
        refused = 1
        try:
            sending.send(b"x")
        except ipcbus.WrongProcess:
            refused = 0
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    send(bus, sending, 5)
    named.until(10)
    acknowledged(bus, sending)
    named.ledger.balanced(1, 10)
