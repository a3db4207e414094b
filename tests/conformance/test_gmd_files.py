"""GMD areas in files: sources and receivers go on after a restart, whichever of them it was."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from tests.kit.bus import LBTIPC, LBTRU, LBTSMX, Bus, Kind
from tests.kit.guaranteed import Named, acknowledged, expected, send, source
from tests.kit.payload import body

if TYPE_CHECKING:
    from pathlib import Path

embedded = pytest.mark.parametrize("mode", ["embedded"])


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
@pytest.mark.parametrize("durability", ["process", "group", "each"])
def test_messages_can_be_waited_for_on_the_disk(bus: Bus, files: dict[str, object], durability: str) -> None:
    sending = source(bus, gmd_durability=durability, **files)
    send(bus, sending, 20)
    sending.wait_durable(timeout=20)
    sending.wait_durable(3, timeout=0)
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
