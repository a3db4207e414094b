from __future__ import annotations

from ipcbus.gmd.delivery_modes import ALL, SOME
from ipcbus.gmd.gmd_settings import FOREVER_NS, ReceiverSettings
from ipcbus.gmd.receiver_state import Verdict
from ipcbus.wire import gmd_messages
from ipcbus.wire.resent_entries import ResentEntries
from tests.kit.gmd_models import ModelReceiverArea, SenderDisk
from tests.kit.gmd_pair import MS, SECOND, Receiver, Source


def test_a_gap_is_filled_before_what_waits_behind_it() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.send()
    source.send(to=())
    source.send(to=())
    one.lost(1, 2)
    source.send()
    source.run()
    assert one.take() == [1, -2, -3, 4]
    assert one.gate.is_open
    assert source.sender.pending == 0


def test_a_loss_at_the_end_is_asked_for() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.send()
    source.send(to=())
    source.send_plain()
    one.lost(1, 2)
    source.run()
    assert one.take() == [1, -2, (2, 2)]
    assert one.gate.is_open


def test_best_effort_messages_keep_their_place() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.send(to=())
    one.lost(0, 0)
    one.live(0, 1)
    source.send_plain()
    source.send()
    one.live(0, 3)
    source.run()
    assert one.take() == [-1, 0, 2, 0]


def test_what_does_not_fit_is_asked_for_again() -> None:
    source = Source()
    one = Receiver(source, settings=ReceiverSettings(held_messages_max=2))
    source.run()
    source.send(to=())
    for _ in range(4):
        source.send()
    assert one.machine.dropped == 2
    one.live(0, source.send_plain())
    source.run()
    assert one.take() == [-1, 2, 3, -4, -5, (5, 5)]
    assert source.sender.pending == 0


def test_a_silent_tail_is_found_by_the_source() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.send(to=())
    source.run()
    assert one.take() == []
    for _ in range(5):
        source.later(SECOND)
    assert one.take() == [-1]
    assert source.sender.pending == 0


def test_acknowledgements_are_recorded_before_they_are_sent() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    one.area.fails = True
    source.send()
    source.run()
    assert source.sender.pending == 1
    assert not one.gate.is_open
    assert one.due <= source.now_ns + SECOND
    one.area.fails = False
    source.run()
    assert source.sender.pending == 0
    assert one.gate.is_open


def test_at_most_so_many_messages_are_unrecorded() -> None:
    source = Source()
    one = Receiver(source, settings=ReceiverSettings(unrecorded_max=4))
    source.run()
    for _ in range(9):
        source.send()
    assert one.area.recorded["gateway", 77].floor == 8
    source.run()
    assert one.area.recorded["gateway", 77].floor == 9


def test_a_killed_receiver_gets_what_it_did_not_record() -> None:
    source = Source()
    one = Receiver(source, settings=ReceiverSettings(unrecorded_max=4))
    source.run()
    for _ in range(6):
        source.send()
    source.lose(one)
    again = Receiver(source, area=one.area, instance=2)
    source.run()
    source.send()
    source.run()
    assert again.take() == [-5, -6, 7]
    assert source.sender.pending == 0


def test_lost_acknowledgements_are_sent_again() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.send()
    source.receivers.remove(one)
    one.turn()
    source.sender.lost_peer(one, source.now_ns)
    one.machine.channel_lost(source.now_ns)
    assert source.sender.pending == 1
    source.receivers.append(one)
    source.send()
    source.run()
    assert one.take() == [1, 2]
    assert source.sender.pending == 0


def test_a_new_channel_does_not_stop_the_stream() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.lose(one)
    assert one.gate.is_open
    number, topic_number = source.save()
    one.live(number, topic_number)
    source.receivers.append(one)
    source.run()
    assert one.take() == [1]
    assert source.sender.pending == 0


def test_out_of_order_acknowledgement_survives_a_restart() -> None:
    source = Source()
    one = Receiver(source)
    one.holds = True
    source.run()
    for _ in range(4):
        source.send()
    one.machine.acknowledge(2, 2)
    one.machine.acknowledge(4, 4)
    source.run()
    assert [source.sender.status(number).standing.value for number in range(1, 5)] == ["pending", "done"] * 2
    source.lose(one)
    again = Receiver(source, area=one.area, instance=2)
    source.run()
    assert again.take() == [-1, -3]
    assert source.sender.pending == 0


def test_a_new_incarnation_begins_afresh() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.send()
    source.run()
    other = Source(SenderDisk(incarnation=78))
    again = Receiver(other, area=one.area)
    other.run()
    other.send()
    other.run()
    assert again.take() == [1]
    assert other.sender.pending == 0


def test_the_next_session_goes_on_and_late_acknowledgements_count() -> None:
    source = Source()
    one = Receiver(source)
    one.holds = True
    source.run()
    for _ in range(3):
        source.send()
    source.run()
    source.open()
    two = Receiver(source, streams=one.streams, instance=1)
    source.run()
    assert two.take() == []
    assert one.machine.stream is two.machine.stream
    one.live(4, 99)
    assert one.take() == [1, 2, 3]
    one.machine.acknowledge(1, 3)
    source.send()
    source.run()
    assert two.take() == [4]
    assert source.sender.pending == 0
    assert one.machine.turn(source.now_ns, lambda _: False) == FOREVER_NS


def test_what_was_not_taken_comes_again_in_the_next_session() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.send(to=())
    one.reads = False
    source.send()
    source.run()
    assert one.take() == []
    one.machine.end()
    one.machine.detach()
    one.machine.detach()
    one.drain()
    assert one.take() == []
    source.open()
    two = Receiver(source, streams=one.streams, instance=1)
    source.run()
    assert two.take() == [-1, -2]


def test_a_plain_source_passes() -> None:
    source = Source()
    one = Receiver(source)
    one.live(0, 0)
    one.lost(1, 1)
    one.machine.receive(gmd_messages.Registered(5, 1, gmd_messages.NOT_GUARANTEED, 0, 0, 0, 0, ""), 0)
    one.drain()
    assert one.take() == [0, (1, 1)]
    assert one.machine.is_plain
    assert one.gate.is_open
    one.live(0, 2)
    one.lost(3, 3)
    assert one.take() == [0, (3, 3)]
    assert one.machine.leave() is None


def test_the_end_of_a_session_delivers_what_is_in_order() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.send(to=())
    one.lost(0, 0)
    one.live(0, 1)
    source.topic_number = 1
    source.send()
    one.machine.end()
    one.drain()
    assert one.take() == [0]  # the lost message comes again
    one.machine.detach()
    assert one.machine.leave() == gmd_messages.leave(5, 1)
    assert one.machine.offer(0, 9, 9, 1, None) is Verdict.DELIVER
    assert one.machine.offer(3, 9, 9, 1, None) is Verdict.DROP
    assert one.machine.loss(9, 9) is Verdict.HELD
    assert one.machine.turn(source.now_ns, lambda _: True) == source.now_ns + 300 * SECOND
    one.machine.turn(source.now_ns + 300 * SECOND, lambda _: True)
    one.drain()
    assert one.take() == [(0, 0), (2, 2), (9, 9)]  # nobody has sent them again


def test_a_leaving_receiver_is_waited_for() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.receivers.clear()
    source.sender.receive(one, gmd_messages.Leave(5, 1), source.now_ns)
    source.send()
    source.run()
    assert source.sender.connected == []
    assert source.sender.status(1).pending == ("settlement",)


def test_requests_are_repeated_and_limited() -> None:
    source = Source()
    one = Receiver(source, settings=ReceiverSettings(request_bytes=10))
    source.run()
    one.reads = False
    for _ in range(12):
        source.save(SOME)
    source.send()
    source.run(40)
    assert 0 < one.machine._ready.bytes < 15
    one.turn()
    assert one.due == source.now_ns + MS  # there may be room then
    one.reads = True
    source.run(60)
    assert one.take() == [*range(-1, -13, -1), 13]
    requests: list[bytes] = []

    def ask(message: bytes) -> bool:
        requests.append(message)
        return True

    source.save()
    one.machine.offer(20, 99, 99, 1, None)
    due = one.machine.turn(source.now_ns, ask)
    assert due == source.now_ns + 2 * SECOND
    one.machine.turn(source.now_ns + SECOND, ask)
    one.machine.turn(due, ask)
    asked = [found for each in requests if isinstance(found := gmd_messages.decode(each), gmd_messages.ResendRequest)]
    assert [each.first for each in asked] == [14, 14]
    assert one.machine.turn(due, lambda _: False) == due + 4 * SECOND


def test_failed_messages_are_passed_over_and_come_later() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.send(ALL, 10 * MS, to=())
    source.send(ALL, 0, to=())
    source.run()
    source.later(10 * MS)
    assert source.sender.status(1).failed
    source.send()
    source.run()
    assert one.take() == [-2, 3]
    assert source.sender.pending == 1
    source.sender.resend(1, source.now_ns)
    source.run()
    assert one.take() == [-1]
    assert source.sender.pending == 0


def test_messages_of_another_incarnation_are_ignored() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    one.machine.receive(gmd_messages.Delete(5, 1, 78, [(1, 9)]), source.now_ns)
    assert one.machine.ignored == 1
    source.send()
    assert one.take() == [1]
    one.live(1, 0)
    assert one.take() == []


def test_a_lost_registration_is_made_again() -> None:
    source = Source()
    one = Receiver(source)
    source.receivers.clear()
    assert one.machine.turn(source.now_ns, lambda _: False) == source.now_ns + MS
    assert one.machine.turn(source.now_ns + MS, lambda _: True) == source.now_ns + 501 * MS
    source.receivers.append(one)
    source.later(SECOND)
    assert one.machine.is_registered


def test_deleted_messages_that_wait_are_not_delivered() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    one.reads = False
    source.send(to=())
    source.send()
    source.run()
    source.sender.delete(1)
    source.run()
    one.reads = True
    one.drain()
    assert one.take() == [2, "1-1"]


def run_of_five(source: Source, receiver: Receiver) -> ResentEntries:
    """Five messages wait in the machine of a receiver, in one piece; it has got the first two."""
    source.run()
    for _ in range(5):
        source.send(to=())
    source.send()
    receiver.reads = False
    source.run()
    found = receiver.machine.take()
    assert isinstance(found, ResentEntries)
    assert [found.pop().number, found.pop().number] == [1, 2]
    receiver.reads = True
    return found


def test_deleted_messages_leave_a_run_that_waits() -> None:
    source = Source()
    one = Receiver(source)
    left = run_of_five(source, one)
    source.sender.delete(1, 3)
    one.reads = False
    source.run()
    assert len(left) == 0  # whoever delivers them goes on with what is left
    one.reads = True
    one.drain()
    assert one.take() == [-4, -5, 6, "1-3"]
    assert one.machine._ready.bytes == 0


def test_what_is_left_of_a_run_comes_again_in_the_next_session() -> None:
    source = Source()
    one = Receiver(source)
    left = run_of_five(source, one)
    one.machine.detach()
    assert len(left) == 0  # whoever delivers them stops
    two = Receiver(source, streams=one.streams)
    source.receivers.remove(one)
    source.run()
    source.run()
    assert two.take() == [-3, -4, -5, -6]
    one.machine.acknowledge(1, 2)
    source.run()
    source.later(SECOND)
    assert source.sender.pending == 0


def test_area_of_the_receiver_knows_more_than_a_source_that_lost_its_tail() -> None:
    source = Source()
    area = ModelReceiverArea()
    one = Receiver(source, area=area)
    source.run()
    for _ in range(5):
        source.send()
    source.run()
    source.disk.last_number = 3
    source.open()
    again = Receiver(source, area=area, instance=2)
    source.run()
    source.send()
    source.run()
    assert one.take() == [1, 2, 3, 4, 5]
    assert again.take() == [4]
    assert source.sender.pending == 0


def test_a_live_message_that_comes_twice_is_dropped_also_while_it_is_held() -> None:
    source = Source()
    one = Receiver(source, settings=ReceiverSettings(held_messages_max=1))
    source.run()
    source.send(to=())
    source.send()  # held behind the gap
    source.send()  # asked for again: no room
    assert one.machine.offer(2, 1, 1, 5, b"again") is Verdict.DROP
    assert one.machine.offer(3, 2, 2, 5, b"again") is Verdict.DROP
    source.run()
    assert one.take() == [-1, 2, -3]
    assert one.machine.offer(2, 1, 1, 5, b"again") is Verdict.DROP


def test_an_answer_of_the_session_before_does_not_take_the_stream_back() -> None:
    disk = SenderDisk()
    before = Receiver(Source(disk))
    source = Source(disk)
    now = Receiver(source, streams=before.streams)
    source.run()
    before.machine.receive(now.answers[0], source.now_ns)
    source.send()
    source.run()
    assert now.take() == [1]
    assert source.sender.pending == 0


def test_what_another_session_of_the_source_brought_meanwhile_is_not_forgotten() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.send()
    source.run()
    two = Receiver(source, streams=one.streams)
    source.receivers.remove(one)
    two.holds_answers = True
    source.run()
    source.send(to=(one,))  # after the answer, and before it comes
    assert one.take() == [1, 2]
    two.holds_answers = False
    two.read_answers()
    source.run()
    source.send()
    source.run()
    assert two.take() == [3]
    assert one.area.recorded["gateway", 77].floor == 3
    assert source.sender.pending == 0


def test_what_comes_again_in_the_next_session_was_not_lost() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.send()
    source.send(to=())
    source.send_plain()
    source.send(to=())
    source.send()
    one.lost(1, 3)
    one.end()
    assert one.take() == [1]
    source.open()
    two = Receiver(source, streams=one.streams)
    source.send(to=())
    source.send()
    source.run()
    assert two.take() == [-2, -3, -4, -5, -6]
    assert one.take() == [(2, 2)]
    assert not one.machine.withholds
    assert one.streams.of("gateway", 77).withholding == []


def test_a_session_that_ends_after_the_next_one_began_reports_what_did_not_come_again() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.send(to=())
    source.send_plain()
    source.open()
    two = Receiver(source, streams=one.streams)
    source.run()
    assert two.take() == [-1]
    one.lost(0, 1)
    assert one.take() == [(1, 1)]
    one.lost(2, 2)
    one.end()
    assert one.take() == [(2, 2)]
    assert not one.machine.withholds


def test_losses_wait_while_a_source_sends_again() -> None:
    source = Source()
    one = Receiver(source)
    source.run()
    source.send(to=())
    one.lost(0, 0)
    one.end()
    source.open()
    two = Receiver(source, streams=one.streams)
    two.reads = False
    two.machine.turn(source.now_ns, two._to_source)
    source.sender.turn(source.now_ns, source._to_receiver)
    assert two.machine.stream is one.machine.stream
    later = source.now_ns + 600 * SECOND
    assert one.machine.turn(source.now_ns, lambda _: True) == source.now_ns + 300 * SECOND
    assert one.machine.turn(later, lambda _: True) == later + SECOND
    source.run()
    assert one.take() == []


def test_what_a_session_lost_may_come_again_though_its_first_answer_came_late() -> None:
    source = Source()
    one = Receiver(source)
    one.holds_answers = True
    one.machine.has_losses = one.drain
    source.run()
    source.send(to=())
    source.send_plain()
    source.open()
    two = Receiver(source, streams=one.streams)
    two.machine.turn(source.now_ns, two._to_source)
    source.sender.turn(source.now_ns, source._to_receiver)
    assert two.machine.stream is not None
    one.read_answers()
    one.lost(0, 1)
    assert one.take() == []
    source.run()
    assert two.take() == [-1]
    assert one.take() == [(1, 1)]
