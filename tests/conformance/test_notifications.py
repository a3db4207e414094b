"""What receivers are told of their sources, and what receivers of one topic have to agree on."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageType, SourceNotification, SourceNotificationType
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTIPC_SOURCE_PACED, LBTRU, LBTSMX, RECEIVER_PACED, Bus
from tests.kit.forms import CallbackTaker
from tests.kit.look import advert, callback_errors
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message, Receiver, Source

CREATE, DELETE = SourceNotificationType.CREATE, SourceNotificationType.DELETE
SOON = {"liveness_check_interval": 10, "resolution_scan_interval": 10}

patterns = pytest.mark.parametrize("wildcard", [False, True], ids=["topic", "pattern"])


class Diary:
    """What a receiver is told of each source, in order."""

    def __init__(self, bus: Bus, wildcard: bool, topic: str = "t", **options: object) -> None:
        self.told: list[SourceNotification] = []
        self.got: dict[str, list[str]] = {}
        context = bus.context("told", **SOON)
        make: Callable[..., Receiver] = context.wildcard_receiver if wildcard else context.receiver
        self.receiver = make(topic, self._message, source_notification=self._notification, **options)

    def _notification(self, notification: SourceNotification) -> None:
        self.got.setdefault(notification.source, []).append(notification.type.name)
        self.told.append(notification)  # last: tests wait for it in another thread

    def _message(self, message: Message) -> None:
        self.got.setdefault(message.source, []).append(message.type.name)


def send(source: Source, count: int = 1) -> None:
    for number in range(source.sequence_number + 1, source.sequence_number + 1 + count):
        source.send(body(number))
    source.flush()


@patterns
def test_a_source_is_told_of_before_its_first_and_after_its_last_message(bus: Bus, wildcard: bool) -> None:
    diary = Diary(bus, wildcard)
    source = bus.source()
    bus.joined(source)
    bus.until(lambda: diary.told, "the notification")  # before anything is sent
    send(source, 2)
    bus.until(lambda: diary.receiver.delivered == 2, "the messages")
    source.close()
    bus.until(lambda: len(diary.told) == 2, "the end")
    assert diary.got[source.source] == ["CREATE", "BOS", "DATA", "DATA", "EOS", "DELETE"]
    assert diary.told == [SourceNotification(kind, "t", source.source, os.getpid()) for kind in (CREATE, DELETE)]


@patterns
def test_every_source_is_told_of(bus: Bus, wildcard: bool) -> None:
    diary = Diary(bus, wildcard)
    sources = [bus.source("t", bus.context()) for _ in range(3)]
    for source in sources:
        bus.joined(source)
        send(source)
    bus.until(lambda: diary.receiver.delivered == 3, "the messages")
    for source in sources:
        source.close()
    bus.until(lambda: len(diary.told) == 6, "the ends")
    assert all(diary.got[source.source] == ["CREATE", "BOS", "DATA", "EOS", "DELETE"] for source in sources)


def test_two_sources_of_one_session_are_two(bus: Bus) -> None:
    context = bus.context("sending")
    one, two = (bus.source("t", context, **bus.kind.id(700)) for _ in range(2))
    diary = Diary(bus, wildcard=False)
    bus.joined(one)
    bus.joined(two)
    bus.until(lambda: len(diary.told) == 2, "the beginnings")
    one.close()
    bus.until(lambda: len(diary.told) == 3, "an end")
    two.close()
    bus.until(lambda: len(diary.told) == 4, "the other end")
    assert [told.type for told in diary.told] == [CREATE, CREATE, DELETE, DELETE]


def test_a_source_without_messages_is_told_of(bus: Bus) -> None:
    diary = Diary(bus, wildcard=False)
    source = bus.source()
    bus.joined(source)
    bus.until(lambda: diary.told, "the notification")
    source.close()
    bus.until(lambda: len(diary.told) == 2, "the end")
    kinds = diary.got[source.source]
    assert [kind for kind in kinds if kind in ("CREATE", "DELETE")] == ["CREATE", "DELETE"]
    assert (kinds[0], kinds[-1]) == ("CREATE", "DELETE")


@patterns
def test_a_receiver_that_comes_later_is_told_of_what_is_there(bus: Bus, wildcard: bool) -> None:
    source = bus.source()
    control = CallbackTaker(bus)
    bus.joined(source)
    send(source)
    control.data(1)
    diary = Diary(bus, wildcard)
    bus.joined(source, 2)
    send(source)
    bus.until(lambda: diary.receiver.delivered == 1, "the message")
    assert diary.got[source.source] == ["CREATE", "BOS", "DATA"]


@patterns
def test_closing_the_receiver_ends_what_it_was_told_of(bus: Bus, wildcard: bool) -> None:
    diary = Diary(bus, wildcard)
    sources = [bus.source("t", bus.context()) for _ in range(2)]
    for source in sources:
        bus.joined(source)
    bus.until(lambda: len(diary.told) == 2, "the beginnings")
    diary.receiver.close()
    assert [told.type for told in diary.told] == [CREATE, CREATE, DELETE, DELETE]
    for source in sources:
        source.close()
    bus.turn()
    assert len(diary.told) == 4


def test_closing_the_context_ends_what_it_was_told_of(bus: Bus) -> None:
    diary = Diary(bus, wildcard=False)
    source = bus.source()
    bus.joined(source)
    bus.until(lambda: diary.told, "the beginning")
    diary.receiver._context.close()
    assert [told.type for told in diary.told] == [CREATE, DELETE]


def test_an_exception_in_it_is_counted_and_messages_come(bus: Bus) -> None:
    def fail(notification: SourceNotification) -> None:
        raise RuntimeError(notification.source)

    got: list[bytes] = []
    receiver = bus.context(**SOON).receiver("t", lambda m: got.append(m.data), source_notification=fail)
    source = bus.source()
    bus.joined(source)
    source.send(b"x", flush=True)
    bus.until(lambda: b"x" in got, "the message")
    source.close()
    bus.until(lambda: callback_errors(receiver) == 2, "both exceptions")


def test_other_receivers_in_the_context_get_their_own_notifications(bus: Bus) -> None:
    context = bus.context("told", **SOON)
    told: list[list[SourceNotificationType]] = [[], [], []]
    first = context.receiver("t", source_notification=lambda n: told[0].append(n.type))
    context.receiver("t", lambda message: None)
    context.wildcard_receiver(".", lambda message: None, source_notification=lambda n: told[1].append(n.type))
    context.receiver("u", source_notification=lambda n: told[2].append(n.type))
    source = bus.source()
    bus.joined(source)
    bus.until(lambda: told[0] and told[1], "the beginnings")
    first.close()
    assert told == [[CREATE, DELETE], [CREATE], []]
    source.close()
    bus.until(lambda: len(told[1]) == 2, "the end")
    assert told == [[CREATE, DELETE], [CREATE, DELETE], []]


@pytest.mark.parametrize("kind", [LBTIPC_SOURCE_PACED], ids=["lbtipc-source-paced"])
@pytest.mark.parametrize("mode", ["split"])
@pytest.mark.parametrize("duty", ["check", "check_losses"])
def test_what_the_contexts_own_thread_left_to_be_told_comes_before_a_message_that_a_timer_finds(
    bus: Bus, duty: str
) -> None:
    diary = Diary(bus, wildcard=False)
    source = bus.source()
    source.wait_for_receivers(1, GIVE_UP_S)  # the own thread of the receiving context joins, and tells nobody
    send(source, 3)
    assert diary.got == {}
    context = diary.receiver._context
    with context._event_loop.guest(lambda: False, None):
        if duty == "check":
            context._receiving_sessions.check()
        else:
            context._receiving_sessions.check_losses(time.monotonic_ns() + 3600 * 1_000_000_000)
    bus.until(lambda: diary.receiver.delivered == 3, "the messages")
    assert diary.got[source.source] == ["CREATE", "BOS", "DATA", "DATA", "DATA"]


@pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
def test_an_eviction_is_an_end_and_a_beginning(bus: Bus) -> None:
    got: list[str] = []
    receiver = bus.context("slow", **SOON).receiver(
        "t", receive_queue_maximum=1, source_notification=lambda told: got.append(told.type.name)
    )
    source = bus.source(
        **bus.kind.small(), slow_receiver_behavior="evict", slow_receiver_timeout=20, udp_fallback="none"
    )
    bus.joined(source)
    send(source, 3 * bus.kind.window // 80)
    while got.count("EOS") == 0:
        message = receiver.receive(GIVE_UP_S)
        assert message is not None
        if message.type is not MessageType.DATA:
            got.append(message.type.name)
    assert (got[0], got.count("CREATE") - got.count("DELETE")) == ("CREATE", 1)
    bus.until(lambda: got.count("DELETE") == 1 and got.count("CREATE") == 2, "the notifications")
    assert [each for each in got if each in ("CREATE", "DELETE")] == ["CREATE", "DELETE", "CREATE"]


# No source at all.


@patterns
def test_a_receiver_without_a_source_is_told_once(bus: Bus, wildcard: bool) -> None:
    context = bus.context("waiting", **SOON)
    make: Callable[..., Receiver] = context.wildcard_receiver if wildcard else context.receiver
    got: list[Message] = []
    make("t", got.append, resolution_no_source_notification_threshold=3)
    never: list[Message] = []
    make("t", never.append)
    bus.until(lambda: got, "the message")
    assert (got[0].type, got[0].topic, got[0].source) == (MessageType.NO_SOURCE_NOTIFICATION, "t", "")
    others = CallbackTaker(bus, "other", context, resolution_no_source_notification_threshold=20)
    others.event(MessageType.NO_SOURCE_NOTIFICATION)  # much later
    assert len(got) == 1
    source = bus.source()
    bus.joined(source)
    send(source)
    bus.until(lambda: len(got) == 3, "BOS and a message")
    source.close()
    bus.until(lambda: got[-1].type is MessageType.NO_SOURCE_NOTIFICATION, "the message again")
    kinds = [message.type.name for message in got]
    assert kinds == ["NO_SOURCE_NOTIFICATION", "BOS", "DATA", "EOS", "NO_SOURCE_NOTIFICATION"]
    assert [message.type.name for message in never] == ["BOS", "DATA", "EOS"]


def test_it_comes_to_who_pulls_too(bus: Bus) -> None:
    receiver = bus.context(**SOON).receiver("t", resolution_no_source_notification_threshold=1)
    message = receiver.receive(30)
    assert message is not None
    assert message.type is MessageType.NO_SOURCE_NOTIFICATION


def test_a_receiver_with_a_source_is_not_told(bus: Bus) -> None:
    context = bus.context(**SOON)
    source = bus.source()
    got = CallbackTaker(bus, "t", context, resolution_no_source_notification_threshold=2)
    bus.joined(source)
    send(source)
    control = CallbackTaker(bus, "none", context, resolution_no_source_notification_threshold=10)
    control.event(MessageType.NO_SOURCE_NOTIFICATION)
    assert MessageType.NO_SOURCE_NOTIFICATION not in got.kinds


# What receivers of one topic share.


def test_receivers_of_a_topic_that_do_not_agree_are_refused_before_anything_is_made(bus: Bus) -> None:
    context = bus.context()
    first = context.receiver("t", otr_message_caching_threshold=5)
    with pytest.raises(ipcbus.ConfigError, match=r"topic 't': option otr_message_caching_threshold = 10000\b.* 5\b"):
        context.receiver("t")
    with pytest.raises(ipcbus.ConfigError, match="ordered_delivery"):
        context.receiver("t", otr_message_caching_threshold=5, ordered_delivery=-1)
    assert len(advert(context).receivers) == 1
    context.receiver("t", otr_message_caching_threshold=5)
    context.receiver("u")
    bus.context().receiver("t")
    first.close()
    with pytest.raises(ipcbus.ConfigError):
        context.receiver("t")


def test_when_the_others_are_gone_their_options_bind_nobody(bus: Bus) -> None:
    context = bus.context()
    context.receiver("t", ordered_delivery=-1).close()
    taker = CallbackTaker(bus, "t", context)
    source = bus.source()
    bus.joined(source)
    send(source)
    taker.data(1)


@pytest.mark.parametrize("kind", [LBTSMX], ids=["lbtsmx"])
def test_a_receiver_of_fragments_does_not_join_lbtsmx(bus: Bus) -> None:
    context = bus.context("receiving", **SOON)
    fragments = CallbackTaker(bus, "t|other", context, wildcard=True, ordered_delivery=0)
    source = bus.source()
    bus.until(lambda: fragments.receiver.sessions, "knowing of the source")
    (info,) = fragments.receiver.sessions
    assert (info.source, info.transport, info.owner_pid) == (source.source, "LBT-SMX", os.getpid())
    assert info.state == "refused"
    assert "ordered_delivery = 0" in info.reason
    assert source.receivers == 0

    whole = CallbackTaker(bus, "t", context)  # the topic's other receivers are not kept from it
    bus.joined(source)
    send(source, 3)
    assert whole.data(3) == [body(number) for number in range(3)]
    assert fragments.got == []
    assert [each.state for each in fragments.receiver.sessions] == ["refused"]
    assert [each.state for each in whole.receiver.sessions] == ["joined"]

    bus.kind = LBTIPC
    other = bus.source("other")
    bus.joined(other)
    send(other, 2)
    assert fragments.data(2) == [body(number) for number in range(2)]
    bus.kind = LBTRU
