from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus.errors import SinkError
from ipcbus.spark.sink.sink_publisher import Publisher, PublisherPool
from ipcbus.spark.sink.write_options import BusOptions, WriteOptions
from tests.kit.bus import GIVE_UP_S
from tests.kit.look import objects, rings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def bus(domain: str) -> BusOptions:
    return WriteOptions.of({"domain": domain, "receiverTimeout": "30s", "linger": "10m"}, "stream").bus


@pytest.fixture
def keeper() -> Iterator[PublisherPool]:
    made = PublisherPool()
    yield made
    made.close()


@pytest.fixture
def receiving(domain: str) -> Iterator[ipcbus.Context]:
    with ipcbus.Context(domain=domain) as context:
        yield context


def received(receiver: ipcbus.Receiver, count: int) -> list[ipcbus.Message]:
    """The next so many messages, without events."""
    found: list[ipcbus.Message] = []
    while len(found) < count:
        message = receiver.receive(GIVE_UP_S)
        assert message is not None
        if message.type == ipcbus.MessageType.DATA:
            found.append(message)
    return found


def test_a_process_stays_on_the_bus_between_tasks(
    keeper: PublisherPool, bus: BusOptions, receiving: ipcbus.Context
) -> None:
    receiver = receiving.wildcard_receiver("t.*")
    for task in range(3):
        with keeper.publisher(bus) as publisher:
            for topic in ("t1", "t2"):
                publisher.ready(topic).send(b"%d" % task, headers=[("a", b"1")])
            publisher.flush()
    messages = received(receiver, 6)
    assert sorted((message.topic, message.data) for message in messages) == [
        (topic, b"%d" % task) for topic in ("t1", "t2") for task in range(3)
    ]
    assert {message.headers for message in messages} == {(("a", b"1"),)}
    assert len({message.source for message in messages}) == 1, "all topics share a ring"


def test_what_is_not_used_for_a_while_is_closed(
    keeper: PublisherPool, bus: BusOptions, receiving: ipcbus.Context, domain: str
) -> None:
    ended = threading.Event()
    receiving.receiver("t", lambda message: ended.set() if message.type == ipcbus.MessageType.EOS else None)
    short = replace(bus, linger_s=0.01)
    for _ in range(2):  # a second time it begins anew
        ended.clear()
        with keeper.publisher(short) as publisher:
            publisher.ready("t").send(b"x", flush=True)
        assert ended.wait(GIVE_UP_S)
    with keeper.publisher(short) as publisher:
        assert not publisher.closed


def test_what_is_used_is_not_closed_however_long_it_takes(
    keeper: PublisherPool, bus: BusOptions, receiving: ipcbus.Context
) -> None:
    receiving.receiver("t", lambda message: None)
    short = replace(bus, linger_s=0.0)
    other = replace(bus, linger_s=0.0, timeout_s=1.0)
    with keeper.publisher(short) as used:
        used.ready("t").send(b"x", flush=True)
        for _ in range(3):
            with keeper.publisher(other) as unused:
                pass
            while not unused.closed:
                threading.Event().wait(0.001)
        assert not used.closed


def test_the_end_of_a_pool_waits_for_a_publisher_that_is_being_closed(
    keeper: PublisherPool, bus: BusOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end, close = threading.Event(), threading.Event(), Publisher.close

    def close_slowly(publisher: Publisher) -> None:
        begun.set()
        assert may_end.wait(GIVE_UP_S)
        close(publisher)

    monkeypatch.setattr(Publisher, "close", close_slowly)
    with keeper.publisher(replace(bus, linger_s=0.0)) as unused:
        pass
    assert begun.wait(GIVE_UP_S)
    timer = threading.Timer(0.05, may_end.set)
    timer.start()
    keeper.close()
    assert unused.closed
    timer.join()


def test_receivers_are_waited_for_before_each_task(
    keeper: PublisherPool, bus: BusOptions, receiving: ipcbus.Context
) -> None:
    impatient = replace(bus, timeout_s=0.05)
    with keeper.publisher(impatient) as publisher:
        with pytest.raises(SinkError, match="0 of 1 receiving contexts of topic 't'.*waitForReceivers"):
            publisher.ready("t")
    patient = replace(impatient, timeout_s=GIVE_UP_S)
    receiver = receiving.receiver("t")
    with keeper.publisher(patient) as publisher:
        publisher.ready("t").send(b"x", flush=True)
    (message,) = received(receiver, 1)
    assert message.data == b"x"
    receiver.close()
    with keeper.publisher(impatient) as publisher:
        with pytest.raises(SinkError, match="0 of 1 receiving contexts"):
            publisher.ready("t")
    with keeper.publisher(replace(impatient, receivers=0)) as publisher:
        publisher.ready("t").send(b"to nobody", flush=True)


def test_a_closed_one_is_replaced(keeper: PublisherPool, bus: BusOptions) -> None:
    with keeper.publisher(bus) as first:
        first.close()
    with keeper.publisher(bus) as second:
        assert second is not first
        assert not second.closed


def test_settings_that_differ_have_contexts_of_their_own(keeper: PublisherPool, bus: BusOptions) -> None:
    with keeper.publisher(bus) as one, keeper.publisher(replace(bus, source=(("transport", "lbtsmx"),))) as other:
        assert one is not other
    with keeper.publisher(bus) as again:
        assert again is one


def test_a_config_says_how_many_rings_there_are(
    keeper: PublisherPool, bus: BusOptions, domain: str, tmp_path: Path
) -> None:
    path = tmp_path / "bus.toml"
    path.write_text("[context]\ntransport_lbtipc_id_high = 20002\n")
    with keeper.publisher(replace(bus, config=str(path), receivers=0)) as publisher:
        for topic in ("a", "b", "c"):
            publisher.ready(topic)
        assert len(rings(domain)) == 2


def test_a_child_after_a_fork_begins_anew(domain: str) -> None:
    code = (
        "import os, sys\n"
        "from ipcbus.spark.sink import sink_publisher as module\n"
        "from ipcbus.spark.sink.write_options import WriteOptions\n"
        f"bus = WriteOptions.of({{'domain': {domain!r}, 'waitForReceivers': '0'}}, 'stream').bus\n"
        "with module.publisher(bus) as one:\n"
        "    one.ready('t').send(b'x', flush=True)\n"
        "pid = os.fork()\n"
        "with module.publisher(bus) as other:\n"
        "    other.ready('t').send(b'y', flush=True)\n"
        "ok = (one is other) == bool(pid)\n"
        "module.close_all()\n"
        "if not pid: os._exit(0 if ok else 1)\n"
        "sys.exit(0 if ok and os.waitpid(pid, 0)[1] == 0 else 1)\n"
    )
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code]).returncode == 0
    assert objects(domain) == []
