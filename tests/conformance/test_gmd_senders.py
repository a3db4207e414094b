"""A guaranteed message names its sender: with the incarnation and the number, an application knows what it has done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageFlag, MessageType
from tests.kit.bus import LBTIPC, LBTSMX, Bus, on_all
from tests.kit.forms import FORMS, Taker
from tests.kit.guaranteed import MEMORY, acknowledged, expected, send, source
from tests.kit.payload import body

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus import Context, Message, SourceEvent

embedded = pytest.mark.parametrize("mode", ["embedded"])
only_ipc = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, object]:
    """Options for areas in files."""
    return {"ipc_gmd_type": "file", "ipc_gmd_directory": str(tmp_path / "gmd")}


class Kept:
    """A receiver that keeps its messages; what they say is read later."""

    def __init__(self, bus: Bus, name: str = "", context: Context | None = None, **options: object) -> None:
        self.bus, self.messages = bus, list[ipcbus.Message]()
        given: dict[str, object] = {**MEMORY, "gmd_name": name, **options} if name else options
        self.receiver = (context or bus.context()).receiver("t", self._keep, **given)  # type: ignore[arg-type]

    def _keep(self, message: Message) -> None:
        if message.type is MessageType.DATA:
            self.messages.append(message)

    def until(self, count: int) -> None:
        """Receives until so many messages have come."""
        self.bus.until(lambda: len(self.messages) >= count, f"{count} messages, not {self.messages}")

    @property
    def incarnation(self) -> int:
        """The incarnation that all messages name, which have the numbers from 1 on."""
        named = {(each.gmd_sender, each.gmd_incarnation) for each in self.messages}
        ((sender, incarnation),) = named
        assert sender == "sender"
        assert 0 < incarnation < 1 << 64
        assert [each.gmd_sequence_number for each in self.messages] == list(range(1, len(self.messages) + 1))
        return incarnation


@on_all
def test_a_message_names_its_sender(bus: Bus) -> None:
    kept, sending = Kept(bus, "receiver"), source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 20)
    sending.send(b"long" * (1_000 if bus.kind is LBTSMX else 20_000), flush=True)
    sending.send(b"with headers", headers={"order": b"7"}, flush=True)
    kept.until(22)
    acknowledged(bus, sending)
    assert kept.incarnation


@embedded
@only_ipc
@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form.name))
def test_every_form_of_receiving_names_the_sender(bus: Bus, form: type[Taker], monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[Message] = []
    enter = form._enter

    def keep(taker: Taker, message: Message) -> None:
        messages.append(message)
        enter(taker, message)

    monkeypatch.setattr(form, "_enter", keep)
    taker, other = form(bus, gmd_name="receiver", row=8, **MEMORY), Kept(bus, "other")
    sending = source(bus)
    expected(bus, sending, "receiver", "other")
    for number in range(1, 31):
        sending.send(body(number))  # longer than a row, so that each comes as a message
    sending.flush()
    taker.data(30)
    other.until(30)
    found = {(each.gmd_sender, each.gmd_incarnation) for each in messages if each.type is MessageType.DATA}
    assert found == {("sender", other.incarnation)}
    assert {(each.gmd_sender, each.gmd_incarnation) for each in messages if each.type is not MessageType.DATA} <= {
        (None, 0)
    }


@embedded
@only_ipc
def test_an_event_queue_keeps_the_sender(bus: Bus) -> None:
    queue = ipcbus.EventQueue()
    kept, sending = Kept(bus, "receiver", event_queue=queue), source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 20)
    while len(kept.messages) < 20:
        queue.dispatch(1.0)
    assert kept.incarnation
    queue.close()


@only_ipc
def test_who_has_no_name_learns_no_sender(bus: Bus) -> None:
    """Also where a receiver with a name gets the same session in the same context."""
    shared = bus.context()
    before, named, after = Kept(bus, "", shared), Kept(bus, "receiver", shared), Kept(bus, "", shared)
    second, alone = Kept(bus, "second", shared), Kept(bus)
    sending = source(bus)
    expected(bus, sending, "receiver", "second")
    bus.joined(sending, 2)
    sending.send(b"plain", delivery_mode="best_effort")
    send(bus, sending, 10)
    for each in (before, named, after, second, alone):
        each.until(11)
        assert (each.messages[0].gmd_sender, each.messages[0].gmd_incarnation) == (None, 0)
        del each.messages[0]
    for each in (before, after, alone):
        assert {(one.gmd_sender, one.gmd_incarnation) for one in each.messages} == {(None, 0)}
    assert named.incarnation == second.incarnation


@on_all
def test_a_message_that_comes_again_names_the_same_sender(bus: Bus, files: dict[str, object]) -> None:
    """From the area, from an earlier session, after a refusal, and after `gmd_fresh`, which begins an incarnation."""
    sending = source(bus, **files)
    send(bus, sending, 10)
    sending.close()
    again = source(bus, **files)
    kept = Kept(bus, "receiver", **files)
    kept.until(10)
    assert all(each.flags & MessageFlag.GMD_RESEND for each in kept.messages)
    send(bus, again, 10)
    kept.until(20)
    acknowledged(bus, again)
    first = kept.incarnation
    assert not kept.messages[-1].flags & MessageFlag.GMD_RESEND
    again.close()
    kept.messages.clear()
    fresh = source(bus, gmd_fresh=True, **files)
    expected(bus, fresh, "receiver")
    send(bus, fresh, 5)
    kept.until(5)
    assert kept.incarnation != first


@only_ipc
def test_a_refused_message_names_the_same_sender(bus: Bus) -> None:
    kept, sending = Kept(bus, "receiver", ipc_gmd_auto_ack=False), source(bus)
    expected(bus, sending, "receiver")
    send(bus, sending, 1)
    kept.until(1)
    kept.messages[0].nack()
    kept.until(2)
    one, same = kept.messages
    assert same.flags & MessageFlag.GMD_RESEND
    assert (one.gmd_sender, one.gmd_incarnation) == (same.gmd_sender, same.gmd_incarnation)
    assert (one.gmd_sequence_number, same.gmd_sequence_number) == (1, 1)


@only_ipc
def test_two_sources_of_a_topic_are_told_apart(bus: Bus) -> None:
    kept, one, other = Kept(bus, "receiver"), source(bus), source(bus, gmd_name="other sender")
    for each in (one, other):
        expected(bus, each, "receiver")
        send(bus, each, 10)
    kept.until(20)
    found = {(each.gmd_sender, each.gmd_incarnation, each.gmd_sequence_number) for each in kept.messages}
    assert len(found) == 20
    assert {each[0] for each in found} == {"sender", "other sender"}


@only_ipc
def test_a_failure_shows_the_message_with_its_sender(bus: Bus) -> None:
    events: list[SourceEvent] = []
    failing = source(bus, gmd_zero_receivers="failure", on_event=events.append)
    send(bus, failing, 1)
    bus.until(lambda: any(each.message is not None for each in events), "the failure")
    (message,) = [each.message for each in events if each.message is not None]
    assert message.gmd_sender == "sender"
    assert message.gmd_incarnation
