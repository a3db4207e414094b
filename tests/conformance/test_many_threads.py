"""Many threads at once, on an interpreter with its lock or without: on a source, a session, a queue and a message.

Each message has to come once, whole, in the order of its thread; the numbers of a topic have no gap; and what was sent
is what came and what was reported lost.
"""

from __future__ import annotations

import os
import struct
import sys
import sysconfig
import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import EventQueue, MessageType
from tests.kit.bus import GIVE_UP_S, LBTIPC, LBTIPC_SOURCE_PACED, LBTRM, LBTSMX, RECEIVER_PACED, on_all
from tests.kit.guaranteed import MEMORY, expected
from tests.kit.guaranteed import source as guaranteed_source
from tests.kit.payload import LOSSES, body, number_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipcbus import Message, Receiver, Source
    from tests.kit.bus import Bus

one_mode = pytest.mark.parametrize("mode", ["embedded"])
on_one = pytest.mark.parametrize("kind", [LBTIPC], ids=lambda kind: str(kind.name))
on_paced = pytest.mark.parametrize("kind", RECEIVER_PACED, ids=lambda kind: str(kind.name))
counts = pytest.mark.parametrize("count", [300, pytest.param(30_000, marks=pytest.mark.long)])

THREADS = 4
_SENDER = struct.Struct("<4xI")


def at_once(work: Callable[[int], object], threads: int = THREADS) -> None:
    """Runs `work` in so many threads, which begin together; raises what one of them raised."""
    begin, errors = threading.Barrier(threads), list[BaseException]()

    def run(number: int) -> None:
        try:
            begin.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]


class Book:
    """What came of one topic from threads whose messages say who sent them and the how-manyth each is."""

    def __init__(self) -> None:
        self.next_of: dict[int, int] = {}
        self.next = self.came = self.lost = self.ended = 0
        self.wrong: list[str] = []

    def __call__(self, message: Message) -> None:
        if message.type is MessageType.DATA:
            self._number(message.first_sequence_number, message.sequence_number)
            self.came += message.sequence_number - message.first_sequence_number + 1
            self._enter(message.data)
        elif message.type in LOSSES:
            self._number(message.first_sequence_number, message.sequence_number)
            self.lost += message.sequence_number - message.first_sequence_number + 1
        elif message.type is MessageType.EOS:
            self.ended += 1

    def _enter(self, data: bytes) -> None:
        number, sender = number_of(data), _SENDER.unpack_from(data)[0]
        wanted = self.next_of.get(sender, 0)
        if number < 0 or number < wanted or (number > wanted and not self.lost):
            self.wrong.append(f"message {number} of thread {sender}, {wanted} was next")
        self.next_of[sender] = number + 1

    def _number(self, first: int, last: int) -> None:
        if first != self.next:
            self.wrong.append(f"number {first}, {self.next} was next")
        self.next = last + 1

    def completes(self, bus: Bus, source: Source) -> None:
        """Waits for the last message of the source, and balances."""
        bus.until(lambda: self.next > source.sequence_number, "the last message")
        self.balances(source)

    def balances(self, source: Source) -> None:
        """Asserts that each number of the source came once, in order, or was reported lost."""
        assert self.wrong == []
        assert self.came + self.lost == self.next == source.sequence_number + 1


def send_each(source: Source, way: str, sender: int, count: int) -> None:
    """Sends `count` messages in a way of sending."""
    for number in range(count):
        size = 20_000 if way == "fragments" and number % 7 == sender else 16 + number % 150
        data = body(number, size, sender)
        if way == "acquire" and number % 2:
            with source.acquire(len(data)) as buffer:
                buffer[:] = data
        elif way == "explicit":
            source.send(data, start_batch=number % 5 == 0, end_batch=number % 5 == 4)
        elif way == "many" and number % 3 == 0 and number + 2 < count:
            source.send_many([body(each, 64, sender) for each in range(number, number + 3)])
        elif way != "many" or number >= count - count % 3:
            source.send(data, flush=number % 50 == 0)


WAYS = ("batches", "fragments", "acquire", "explicit", "many")


@on_all
@one_mode
@pytest.mark.parametrize("way", WAYS)
@counts
def test_threads_that_share_a_source(bus: Bus, way: str, count: int) -> None:
    if bus.kind is LBTSMX and way == "fragments":
        pytest.skip("a message of LBT-SMX has no fragments")
    book = Book()
    bus.receiver("t", book)
    source = bus.source("t")
    bus.joined(source)
    at_once(lambda sender: send_each(source, way, sender, count))
    source.flush()
    book.completes(bus, source)
    if not bus.kind.source_paced:
        assert book.lost == 0
        assert book.next_of == dict.fromkeys(range(THREADS), count)


@on_paced
@one_mode
@counts
def test_sources_that_share_a_session(bus: Bus, count: int) -> None:
    context, receiving = bus.context("sending"), bus.context("receiving")
    options = {**bus.kind.small(), **bus.kind.id(900)}
    books = [Book() for _ in range(THREADS)]
    for number, book in enumerate(books):
        bus.receiver(f"t{number}", book, receiving)
    sources = [bus.source(f"t{number}", context, **options) for number in range(THREADS)]
    for source in sources:
        bus.joined(source)
    ways = ("batches", "acquire", "explicit", "many")
    at_once(lambda sender: send_each(sources[sender], ways[sender], sender, count))
    for source in sources:
        source.flush()
    for book, source in zip(books, sources, strict=True):
        book.completes(bus, source)
        assert (book.lost, source.sequence_number) == (0, count - 1)


@on_paced
@one_mode
def test_contexts_that_send_and_receive_at_once(bus: Bus) -> None:
    contexts = [bus.context(f"c{number}") for number in range(THREADS)]
    books = [Book() for _ in contexts]
    sources = list[ipcbus.Source]()
    for number, context in enumerate(contexts):
        bus.receiver(f"t{number}", books[number], contexts[number - 1])
        sources.append(bus.source(f"t{number}", context))
    for source in sources:
        bus.joined(source)
    at_once(lambda number: send_each(sources[number], "batches", number, 500))
    for book, source in zip(books, sources, strict=True):
        source.flush()
        book.completes(bus, source)
        assert book.next == 500


@on_all
@one_mode
def test_a_source_is_closed_while_threads_send(bus: Bus) -> None:
    book = Book()
    bus.receiver("t", book)
    source = bus.source("t")
    bus.joined(source)
    sent, begun = [0] * THREADS, threading.Semaphore(0)

    def send(sender: int) -> None:
        if sender == 0:
            for _ in range(THREADS - 1):
                begun.acquire()
            source.close()
            return
        with pytest.raises(ipcbus.ClosedError):
            while True:
                source.send(body(sent[sender], 64, sender))
                sent[sender] += 1
                if sent[sender] == 50:
                    begun.release()

    at_once(send)
    assert source.sequence_number + 1 == sum(sent)
    bus.until(lambda: book.ended, "EOS")
    if not bus.kind.over_udp:
        book.balances(source)
    assert book.wrong == []


@on_paced
@one_mode
@pytest.mark.parametrize("leaves", ["at once", "never"])
def test_a_source_is_closed_during_acquire(bus: Bus, leaves: str) -> None:
    book = Book()
    bus.receiver("t", book)
    source = bus.source("t", bus.context("sending", acquire_close_timeout=10 if leaves == "never" else 5000))
    bus.joined(source)
    inside, closed = threading.Event(), threading.Event()
    source.send(body(0))

    def write(number: int) -> None:
        if number == 1:
            assert inside.wait(GIVE_UP_S)
            source.close()
            closed.set()
            return
        block = source.acquire(64)
        buffer = block.__enter__()
        inside.set()
        if leaves == "never":
            assert closed.wait(GIVE_UP_S)
        buffer[:] = body(1)
        if leaves == "never":
            with pytest.raises(ipcbus.ClosedError):
                block.__exit__(None, None, None)
        else:
            block.__exit__(None, None, None)

    at_once(write, 2)
    bus.until(lambda: book.ended, "EOS")
    assert (book.wrong, book.came) == ([], 1 + (leaves != "never"))


@on_one
@one_mode
@counts
def test_late_join_reads_what_threads_send(bus: Bus, count: int) -> None:
    source = bus.source("t", late_join=1, retransmit_retention_size_limit=1 << 30)
    books = [Book() for _ in range(3)]

    def work(number: int) -> None:
        if number < THREADS:
            send_each(source, "fragments" if number == 1 else "batches", number, count)
        else:
            bus.receiver("t", books[number - THREADS], bus.context(f"receiving {number}"))

    at_once(work, THREADS + len(books))
    source.flush()
    for book in books:
        book.completes(bus, source)
        assert book.next_of == dict.fromkeys(range(THREADS), count)


@on_one
@one_mode
@counts
@pytest.mark.parametrize("policy", ["hand", "callback", "last"])
def test_guaranteed_messages_are_sent_and_acknowledged_by_threads(bus: Bus, policy: str, count: int) -> None:
    count //= 3
    queue, book, lock = EventQueue(10_000), Book(), threading.Lock()
    ways: dict[str, dict[str, object]] = {
        "hand": {"ipc_gmd_auto_ack": False},
        "callback": {},
        "last": {"ipc_gmd_auto_ack_policy": "last"},
    }
    kept: list[Message] = []

    def keep(message: Message) -> None:
        with lock:
            if message.type is MessageType.DATA:
                kept.append(message)
            if policy != "hand":
                kept.clear()
        if policy == "hand" and message.type is MessageType.DATA:
            message.ack()

    bus.receiver("t", keep, event_queue=queue, gmd_name="receiver", **{**MEMORY, **ways[policy]})
    bus.receiver("t", book, bus.context("watching"))
    sending = guaranteed_source(bus)
    expected(bus, sending, "receiver")
    bus.joined(sending, 2)
    done = threading.Event()

    def work(number: int) -> None:
        if number < THREADS:
            send_each(sending, "fragments" if number == 1 else "batches", number, count)
            return
        while not done.is_set():
            queue.dispatch(0.01)
            if policy == "hand":
                with lock:
                    again = kept[-3:]
                for message in again:
                    message.ack()

    dispatching = threading.Thread(target=at_once, args=(lambda number: work(THREADS + number), 2))
    dispatching.start()
    try:
        at_once(work)
        sending.flush()
        bus.until(lambda: sending.gmd_num_pending == 0, "all acknowledgements")
    finally:
        done.set()
        dispatching.join()
    book.completes(bus, sending)
    assert book.next_of == dict.fromkeys(range(THREADS), count)
    queue.close()


@on_paced
@one_mode
@pytest.mark.parametrize("form", ["receive", "many", "lease"])
@counts
def test_threads_that_pull_from_one_receiver(bus: Bus, form: str, count: int) -> None:
    count *= 3
    receiver = bus.receiver("t")
    source = bus.source("t", **bus.kind.small())
    bus.joined(source)
    end, got, lock = threading.Event(), list[int](), threading.Lock()

    def work(thread: int) -> None:
        if thread == 0:
            for number in range(count):
                source.send(body(number), flush=number % 10 == 0)
            source.flush()
            return
        while not end.is_set():
            found = taken(receiver, form)
            with lock:
                got.extend(found)
                if len(got) >= count:
                    end.set()

    at_once(work)
    assert sorted(got) == list(range(count))


def taken(receiver: Receiver, form: str) -> list[int]:
    """The numbers of what one call of a thread takes."""
    if form == "receive":
        message = receiver.receive(0.01)
        found = [message] if message is not None else []
    elif form == "many":
        found = receiver.receive_many(10, 0.01)
    else:
        with receiver.lease(0.01) as message:
            if message is None or message.type is not MessageType.DATA:
                return []
            message.array(len(message), "u1")
            assert number_of(bytes(message.view)) == message.sequence_number
            return [message.sequence_number]
    messages = [each for each in found if each.type is MessageType.DATA]
    assert all(number_of(each.data) == each.sequence_number for each in messages)
    return [each.sequence_number for each in messages]


@on_paced
@one_mode
@counts
def test_threads_that_dispatch_one_event_queue(bus: Bus, count: int) -> None:
    queue, got, lock, end = EventQueue(64), list[int](), threading.Lock(), threading.Event()

    def note(message: Message) -> None:
        if message.type is MessageType.DATA:
            assert number_of(message.data) == message.sequence_number
            with lock:
                got.append(message.sequence_number)
                if len(got) == 3 * count:
                    end.set()

    bus.receiver("t", note, event_queue=queue)
    source = bus.source("t")
    bus.joined(source)

    def work(thread: int) -> None:
        if thread == 0:
            for number in range(3 * count):
                source.send(body(number), flush=number % 10 == 0)
            source.flush()
        while thread and not end.is_set():
            queue.dispatch(0.01)

    at_once(work)
    assert sorted(got) == list(range(3 * count))
    queue.close()


@on_one
@one_mode
def test_threads_that_look_at_messages_of_a_callback(bus: Bus) -> None:
    """A message goes to other threads inside its callback: they look at it while the callback returns."""
    handed: list[Message] = []
    end, seen, lock = threading.Event(), list[int](), threading.Lock()
    kept: list[memoryview] = []

    def hand_out(message: Message) -> None:
        if message.type is MessageType.DATA:
            handed.append(message)

    bus.receiver("t", hand_out)
    source = bus.source("t")
    bus.joined(source)

    def work(thread: int) -> None:
        if thread == 0:
            for number in range(2000):
                source.send(body(number), flush=True)
            return
        while not end.is_set():
            try:
                message = handed.pop()
            except IndexError:
                continue
            if thread == 1:
                kept.append(message.view)
            assert number_of(message.data) == message.sequence_number
            with lock:
                seen.append(message.sequence_number)
                if len(seen) == 2000:
                    end.set()

    at_once(work)
    assert sorted(seen) == list(range(2000))


@on_one
@one_mode
@counts
def test_threads_that_ask_and_threads_that_answer(bus: Bus, count: int) -> None:
    queue, end = EventQueue(1000), threading.Event()
    answering = bus.context("answering")
    bus.receiver("t", lambda message: answer(message), answering, event_queue=queue)
    source = bus.source("t")
    bus.joined(source)

    def answer(message: Message) -> None:
        if message.type is MessageType.REQUEST:
            message.respond(b"[" + message.data + b"]")

    def work(thread: int) -> None:
        for number in range(count // 3):
            asked = b"%d/%d" % (thread, number)
            assert source.request(asked, timeout=GIVE_UP_S).data == b"[" + asked + b"]"

    def dispatch(_: int) -> None:
        while not end.is_set():
            queue.dispatch(0.01)

    dispatching = threading.Thread(target=at_once, args=(dispatch, 2))
    dispatching.start()
    try:
        at_once(work)
    finally:
        end.set()
        dispatching.join()
        queue.close()


@one_mode
@pytest.mark.parametrize("kind", [LBTIPC, LBTIPC_SOURCE_PACED, LBTSMX, LBTRM], ids=lambda kind: str(kind.name))
def test_sources_and_receivers_come_and_go_in_threads(bus: Bus) -> None:
    sending, receiving = bus.context("sending"), bus.context("receiving")

    def work(thread: int) -> None:
        for number in range(8):
            topic = f"t{thread % 2}.{number}"
            if thread < 2:
                source = bus.source(topic, sending)
                source.send(body(number), flush=True)
                source.close()
            else:
                bus.receiver(topic, lambda message: None, receiving).close()

    at_once(work)
    assert (len(sending._sources), len(receiving._receivers)) == (0, 0)


@on_all
@one_mode
def test_the_lock_of_the_interpreter_stays_as_it_was(bus: Bus) -> None:
    """On a free-threaded interpreter nothing that the library imports or does turns the lock on."""
    if not sysconfig.get_config_var("Py_GIL_DISABLED") or os.environ.get("PYTHON_GIL"):
        pytest.skip("this interpreter has its lock, or the environment says so")
    book = Book()
    bus.receiver("t", book)
    source = bus.source("t")
    bus.joined(source)
    source.send(body(0), flush=True)
    bus.until(lambda: book.came == 1, "the message")
    assert not sys._is_gil_enabled()  # type: ignore[attr-defined, unused-ignore]
