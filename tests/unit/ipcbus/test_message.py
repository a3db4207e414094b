"""Messages and events as values."""

from __future__ import annotations

import pytest

import ipcbus
from ipcbus import MessageFlag, MessageType, SourceEvent, SourceEventType
from ipcbus.delivery.received_message import Message, Origin, event, whole_message
from tests.kit.cases import each_of


def test_an_event_has_its_numbers_and_no_data() -> None:
    loss = event(Origin("t", "LBT-IPC:1:1"), MessageType.UNRECOVERABLE_LOSS_BURST, 5, 9)
    assert loss.type is MessageType.UNRECOVERABLE_LOSS_BURST
    assert (loss.first_sequence_number, loss.sequence_number) == (5, 9)
    assert (loss.data, bytes(loss.view), len(loss), loss.flags) == (b"", b"", 0, 0)
    assert (loss.topic, loss.source) == ("t", "LBT-IPC:1:1")
    assert (loss.send_time_ns, loss.fragment_info) == (0, None)
    loss.ack()


def test_an_event_without_numbers_has_minus_one() -> None:
    begin = event(Origin("t", "s"), MessageType.BOS, -1, -1)
    assert (begin.first_sequence_number, begin.sequence_number) == (-1, -1)


@each_of("kind", MessageType)
def test_every_kind_can_be_told(kind: MessageType) -> None:
    told = event(Origin("t", "s"), kind, 2**63 - 1, 2**63 - 1)
    assert told.type is kind
    assert told.sequence_number == 2**63 - 1
    if kind is not MessageType.DATA:
        assert kind.name in repr(told)
    assert "'t'" in repr(told)


def test_kinds_have_the_numbers_of_ultra_messaging() -> None:
    assert {kind.name: int(kind) for kind in MessageType} == {
        "DATA": 0,
        "EOS": 1,
        "REQUEST": 2,
        "RESPONSE": 3,
        "UNRECOVERABLE_LOSS": 4,
        "UNRECOVERABLE_LOSS_BURST": 5,
        "NO_SOURCE_NOTIFICATION": 6,
        "BOS": 20,
        "GMD_FAILURE": 100,
    }


def test_flags_are_a_word_of_their_own_with_the_numbers_of_ultra_messaging() -> None:
    assert {flag.name: int(flag) for flag in MessageFlag} == {
        "START_BATCH": 0x1,
        "END_BATCH": 0x2,
        "LATE_JOIN": 0x8,
        "PROPERTIES": 0x10,
        "REQUEST": 0x40,
        "GUARANTEED": 0x80,
        "OTR": 0x2000,
        "GMD_RESEND": 0x10000,
        "UMQ_REASSIGNED": 0x20000,
        "UMQ_ULB": 0x40000,
    }
    told = whole_message(Origin("t", "s"), b"again", 5, 5, MessageFlag.OTR | MessageFlag.GMD_RESEND | 0x3, 0, None)
    assert told.flags == 0x12003


def test_messages_cannot_be_written_to() -> None:
    told = event(Origin("t", "s"), MessageType.BOS, -1, -1)
    for name in ("type", "data", "view", "topic", "source", "sequence_number"):
        with pytest.raises(AttributeError):
            setattr(told, name, None)


def test_source_events_are_values() -> None:
    assert SourceEvent(SourceEventType.WAKEUP) == SourceEvent(SourceEventType.WAKEUP, 0, "")
    with pytest.raises(AttributeError):
        SourceEvent(SourceEventType.WAKEUP).pid = 5  # type: ignore[misc]


def test_the_public_names_are_there() -> None:
    assert ipcbus.Message is Message
    for name in ipcbus.__all__:
        assert getattr(ipcbus, name) is not None
    assert ipcbus.__version__[0].isdigit()


def test_kinds_are_printed_by_their_names() -> None:
    kinds = (MessageType.DATA, SourceEventType.WAKEUP, ipcbus.SourceNotificationType.CREATE)
    assert [str(kind) for kind in kinds] == [
        "MessageType.DATA",
        "SourceEventType.WAKEUP",
        "SourceNotificationType.CREATE",
    ]
    assert [f"{kind}" for kind in kinds] == [str(kind) for kind in kinds]
    assert [f"{kind:03d}" for kind in kinds] == ["000", "003", "001"]
    assert [kind == number for kind, number in zip(kinds, (0, 3, 1), strict=True)] == [True] * 3
