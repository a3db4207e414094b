from __future__ import annotations

import pytest

from ipcbus.gmd.delivery_modes import ALL, SOME
from ipcbus.gmd.gmd_events import Confirmed, GmdFailure, Registration, Standing
from ipcbus.gmd.gmd_settings import GmdErrorNumber, ReceiverSettings, SenderSettings, ZeroReceivers
from ipcbus.gmd.sender_state import GmdSender
from ipcbus.wire import gmd_messages
from tests.kit.gmd_models import ModelSenderArea
from tests.kit.gmd_pair import SECOND, TOPIC, Receiver, Source


def failures(source: Source) -> list[tuple[int, str, int]]:
    return [
        (each.number, each.receiver, each.error_number) for each in source.take_events() if isinstance(each, GmdFailure)
    ]


def test_acknowledged_messages_leave_the_area() -> None:
    source = Source()
    receiver = Receiver(source)
    source.run()
    assert receiver.gate.is_open
    for _ in range(5):
        source.send()
    assert source.sender.pending == 5
    source.run()
    assert receiver.take() == [1, 2, 3, 4, 5]
    assert source.sender.pending == 0
    assert not source.disk.saved
    assert source.sender.status(5).standing is Standing.DONE
    assert source.sender.status(6).standing is Standing.UNKNOWN


def test_all_waits_for_every_receiver_and_some_for_one() -> None:
    source = Source()
    one, two = Receiver(source, "one"), Receiver(source, "two", instance=2)
    source.run()
    two.holds = True
    first, second = source.send(ALL), source.send(SOME)
    source.run()
    status = source.sender.status(first)
    assert (status.standing, status.succeeded, status.pending) == (Standing.PENDING, ("one",), ("two",))
    assert source.sender.status(second).standing is Standing.DONE
    two.machine.acknowledge(1, 2)
    source.run()
    assert source.sender.pending == 0
    assert one.take() == two.take() == [1, 2]


def test_the_first_name_gets_what_waits() -> None:
    source = Source()
    for _ in range(3):
        source.send()
    one = Receiver(source, "one")
    source.run()
    two = Receiver(source, "two", instance=2)
    source.run()
    source.send()
    source.run()
    assert one.take() == [-1, -2, -3, 4]
    assert two.take() == [4]
    assert source.sender.pending == 0


def test_zero_receivers_success_and_failure() -> None:
    source = Source(settings=SenderSettings(zero_receivers=ZeroReceivers.SUCCESS))
    source.send()
    source.run()
    assert source.sender.pending == 0
    source = Source(settings=SenderSettings(zero_receivers=ZeroReceivers.FAILURE))
    source.send()
    source.run()
    assert failures(source) == [(1, "", GmdErrorNumber.NO_RECEIVERS)]
    receiver = Receiver(source)
    source.run()
    assert receiver.take() == []
    assert source.sender.resend(1, source.now_ns) == 1
    source.run()
    assert receiver.take() == [-1]
    assert source.sender.pending == 0


def test_a_name_is_taken_by_one_live_receiver() -> None:
    source = Source()
    one = Receiver(source, "one")
    source.run()
    other = Receiver(source, "one", instance=2)
    source.run()
    assert other.machine.refusal == gmd_messages.NAME_IN_USE
    source.lose(one)
    source.later(SECOND)
    assert other.machine.is_registered


@pytest.mark.parametrize(
    ("mode", "error"),
    [
        (gmd_messages.GMD_FAILURE, GmdErrorNumber.RECEIVER_EXIT),
        (gmd_messages.GMD_SUCCESS, None),
        (gmd_messages.WARM, GmdErrorNumber.RECEIVER_TIMEOUT),
    ],
)
def test_disconnect_modes(mode: int, error: GmdErrorNumber | None) -> None:
    source = Source()
    receiver = Receiver(source, "one", settings=ReceiverSettings(disconnect_mode=mode))
    source.run()
    receiver.holds = True
    source.send()
    source.lose(receiver)
    source.run()
    if mode == gmd_messages.WARM:
        assert source.sender.expected == ["one"]
        assert failures(source) == []
        source.later(300 * SECOND)
    assert source.sender.expected == []
    assert failures(source) == ([(1, "one", error)] if error else [])
    assert source.sender.pending == (1 if error else 0)
    if error:
        assert source.sender.status(1).failed == (("one", error),)
        assert source.sender.delete(1) == 1
        assert source.sender.delete(1) == 0
    source.send()
    returned = Receiver(source, "two", instance=2)
    source.run()
    assert returned.take() == [-2]


def test_delivery_timeouts() -> None:
    source = Source()
    receiver = Receiver(source, "one")
    source.run()
    receiver.holds = True
    source.send(ALL, 2 * SECOND)
    source.send(ALL, 5 * SECOND)
    source.send(ALL)
    assert source.run() <= source.now_ns + 2 * SECOND
    source.later(SECOND)
    assert failures(source) == []
    source.later(SECOND)
    assert failures(source) == [(1, "one", GmdErrorNumber.SENDER_TIMEOUT)]
    receiver.machine.acknowledge(1, 1)
    source.later(10 * SECOND)
    assert failures(source) == [(2, "one", GmdErrorNumber.SENDER_TIMEOUT)]
    assert source.sender.status(1).standing is Standing.DONE
    assert source.sender.resend(None, source.now_ns) == 1
    source.later(5 * SECOND)
    assert failures(source) == [(2, "one", GmdErrorNumber.SENDER_TIMEOUT)]
    receiver.machine.acknowledge(2, 3)
    source.run()
    assert source.sender.pending == 0


def test_confirmed_events() -> None:
    source = Source(settings=SenderSettings(confirms=True))
    Receiver(source, "one")
    source.run()
    source.send()
    source.send()
    source.run()
    assert source.take_events() == [Registration("one", True, True), Confirmed(1, 2)]


def test_a_restarted_source_goes_on() -> None:
    source = Source()
    one, two = Receiver(source, "one"), Receiver(source, "two", instance=2)
    source.run()
    one.holds = True
    source.send(ALL, 3 * SECOND, to=(one,))
    source.send(SOME, to=())
    source.send(ALL, to=(one,))
    one.turn()
    two.turn()
    source.open()
    assert source.sender.pending == 3
    assert sorted(source.sender.expected) == ["one", "two"]
    again = Receiver(source, "two", area=two.area, instance=3)
    source.run()
    assert again.take() == [-1, -2, -3]
    assert source.sender.status(1).pending == ("one",)
    assert source.sender.status(1).succeeded == ("two",)
    source.later(3 * SECOND)
    assert failures(source) == [(1, "one", GmdErrorNumber.SENDER_TIMEOUT)]
    source.open()
    source.run()
    assert failures(source) == [(1, "one", GmdErrorNumber.SENDER_TIMEOUT)]
    last = Receiver(source, "one", area=one.area, instance=4)
    source.run()
    assert last.take() == [-3]
    assert source.sender.resend(1, source.now_ns) == 1
    source.run()
    assert last.take() == [-1]
    assert source.sender.pending == 0


def test_a_name_that_some_left_out_stays_out_after_a_restart() -> None:
    """Seed 7536 of the simulation: the area did not know, and the name got the message late."""
    source = Source()
    one, two = Receiver(source, "one"), Receiver(source, "two", instance=2)
    source.run()
    one.holds = two.holds = True
    source.send(SOME, to=(two,))
    source.run()
    source.lose(one)
    source.later(300 * SECOND)
    assert source.sender.expected == ["two"]
    assert source.sender.status(1).pending == ("two",)
    source.open()
    assert source.sender.status(1).pending == ("two",)
    assert failures(source) == []


def test_forget_moves_what_no_receiver_acknowledged() -> None:
    source = Source()
    one, two = Receiver(source, "one"), Receiver(source, "two", instance=2)
    source.run()
    two.holds = True
    source.send()
    source.run()
    assert not source.sender.forget("three", source.now_ns)
    source.lose(two)
    assert source.sender.forget("two", source.now_ns)
    assert source.sender.pending == 0
    source.lose(one)
    source.send()
    assert source.sender.forget("one", source.now_ns)
    assert source.sender.pending == 1
    three = Receiver(source, "three", instance=3)
    source.run()
    assert three.take() == [-2]
    assert source.sender.pending == 0


def test_a_forgotten_receiver_that_is_connected_registers_again() -> None:
    source = Source()
    one = Receiver(source, "one")
    source.run()
    assert source.sender.forget("one", source.now_ns)
    source.run()
    source.send()
    source.run()
    assert one.take() == [1]
    assert source.sender.expected == ["one"]


def test_what_a_receiver_asked_before_it_was_forgotten_is_not_answered() -> None:
    source = Source()
    one = Receiver(source, "one")
    source.run()
    source.send(to=())
    incarnation, now_ns = source.area.incarnation, source.now_ns
    source.sender.receive(one, gmd_messages.ResendRequest(TOPIC, 1, incarnation, 1, None, 1000), now_ns)
    assert source.sender.forget("one", now_ns)
    source.sender.receive(one, gmd_messages.Register(TOPIC, 1, gmd_messages.WARM, "one"), now_ns)
    source.run()
    source.later(SECOND)  # it learns that there is a message,
    source.later(SECOND)  # and asks for it
    assert one.take() == [-1]
    assert source.sender.pending == 0


def test_delete_reaches_receivers() -> None:
    source = Source()
    one = Receiver(source, "one")
    source.run()
    source.send(to=())
    source.send(to=())
    assert source.sender.delete(1) == 1
    source.send()
    source.run()
    assert one.take() == ["1-1", -2, 3]
    assert source.sender.pending == 0


def test_a_damaged_copy_is_reported_and_passed_over() -> None:
    source = Source()
    for _ in range(3):
        source.send()
    source.disk.damaged.add(2)
    one = Receiver(source, "one")
    source.run()
    assert one.take() == [-1, -3]
    assert failures(source) == [(2, "", GmdErrorNumber.AREA_DAMAGED)]
    assert source.sender.delete(2) == 1


def test_lost_copies_are_reported_at_the_start() -> None:
    source = Source()
    for _ in range(3):
        source.send()
    del source.disk.saved[2]
    source.disk.lost = [(2, 2)]
    source.open()
    source.run()
    assert failures(source) == [(2, "", GmdErrorNumber.AREA_DAMAGED)]
    one = Receiver(source, "one")
    source.run()
    assert one.take() == [-1, -3]


def test_what_does_not_belong_to_a_registration_is_ignored() -> None:
    source = Source()
    one = Receiver(source, "one")
    source.run()
    source.send()
    source.sender.receive("other", gmd_messages.Ack(5, 1, 77, [(1, 1)]), source.now_ns)
    source.sender.receive(one, gmd_messages.Ack(5, 2, 77, [(1, 1)]), source.now_ns)
    source.sender.receive(one, gmd_messages.Ack(5, 1, 78, [(1, 1)]), source.now_ns)
    source.sender.receive("other", gmd_messages.Leave(5, 1), source.now_ns)
    assert source.sender.ignored == 4
    assert source.sender.pending == 1
    source.sender.receive(one, gmd_messages.Ack(5, 1, 77, [(1, 2**40)]), source.now_ns)
    source.sender.receive(one, gmd_messages.Nack(5, 1, 77, 2, 522), source.now_ns)
    assert (source.sender.ignored, source.sender.pending) == (6, 1)
    source.sender.receive(one, gmd_messages.Ack(5, 1, 77, [(1, 1)]), source.now_ns)
    assert source.sender.pending == 0
    source.send(to=())
    assert source.sender.pending == 1


def test_a_receiver_that_gives_up() -> None:
    source = Source()
    one = Receiver(source, "one", settings=ReceiverSettings(deliveries_max=2))
    source.run()
    one.holds = True
    source.send()
    source.send()
    assert one.machine.refuse(1, 0, source.now_ns)
    source.later(SECOND)
    assert one.take() == [1, 2, -1]
    assert not one.machine.refuse(1, 0, source.now_ns)
    source.run()
    assert failures(source) == [(1, "one", GmdErrorNumber.RECEIVER_REFUSED)]
    one.holds = False
    assert source.sender.resend(1, source.now_ns) == 1
    one.machine.acknowledge(2, 2)
    source.run()
    assert one.take() == [-1]
    assert source.sender.pending == 0


def test_names_are_limited_and_must_be_noted() -> None:
    source = Source(settings=SenderSettings(names_max=1))
    source.area.refuses_notes = True
    one = Receiver(source, "one")
    source.run()
    assert one.machine.refusal == gmd_messages.AREA_FAILED
    source.area.refuses_notes = False
    source.later(SECOND)
    assert one.machine.is_registered
    two = Receiver(source, "two", instance=2)
    source.run()
    assert two.machine.refusal == gmd_messages.TOO_MANY_NAMES


def test_a_segment_that_begins_while_the_area_is_recovered_has_the_names() -> None:
    source = Source()
    Receiver(source, "one")
    source.run()
    source.send()
    copy = source.disk.saved[1]
    source.run()
    source.disk.saved[1] = copy  # its process was killed before it released the copy
    area = ModelSenderArea(source.disk, segment=1)
    for _ in range(2):
        area._records = 1
        sender = GmdSender(area, TOPIC, source.settings, source.now_ns, opening=1)
        assert sender.pending == 0
        assert sender.expected == ["one"]
