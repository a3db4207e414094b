"""The command line as processes: between each other, ended by signals, with a reader that goes away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import stats
from ipcbus.archive import Archive
from tests.kit.archives import add
from tests.kit.bus import GIVE_UP_S
from tests.kit.look import objects
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Process = subprocess.Popen[str]

INTERRUPT, TERMINATE = (signal.SIGINT, 130), (signal.SIGTERM, 143)
SIGNALS = pytest.mark.parametrize(("number", "code"), [INTERRUPT, TERMINATE], ids=["SIGINT", "SIGTERM"])
ONE_SIGNAL = pytest.mark.parametrize(
    ("number", "code"), [pytest.param(*INTERRUPT, marks=pytest.mark.long), TERMINATE], ids=["SIGINT", "SIGTERM"]
)
"""Every command ends by the same handler, so that the short form sends both signals to one command only."""


SMALL_WINDOWS = """
[context]
transport_lbtipc_datagram_max_size = 8192
[source]
transport_lbtipc_transmission_window_size = 65536
transport_lbtsmx_transmission_window_size = 65536
"""


@contextmanager
def started(*arguments: str, stdin: int | None = subprocess.DEVNULL) -> Iterator[Process]:
    """`ipcbus` with these arguments as a process; it is gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ipcbus_tools", *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Of its own group, so that Ctrl-C of the one who runs the tests does not end it half way.
        process_group=0,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def receivers(domain: str) -> list[str]:
    """Topics of all receivers of a domain."""
    contexts = stats.take_snapshot(domain).contexts
    return [receiver.topic for context in contexts for receiver in context.receivers]


def sent(domain: str) -> int:
    """Messages that the sessions of a domain have published."""
    return sum(session.counters.get("lbm_msgs_sent", 0) for session in stats.take_snapshot(domain).sessions)


# ---------------------------------------------------------------------- together


@pytest.mark.parametrize("transport", ["lbtipc", pytest.param("lbtsmx", marks=pytest.mark.long)])
def test_pub_to_echo(domain: str, transport: str) -> None:
    with (
        started("echo", "t", "-n", "1000", "--json", "--domain", domain) as one,
        started("echo", "t", "-n", "1000", "--json", "--domain", domain) as other,
        started(
            *("pub", "t", "--wait-receivers", "2", "--timeout", "30", "--transport", transport),
            *("--domain", domain, "--json"),
            stdin=subprocess.PIPE,
        ) as pub,
    ):
        report, errors = pub.communicate("".join(f"line {number}\n" for number in range(1000)))
        assert pub.returncode == 0, errors
        assert json.loads(report)["messages"] == 1000
        for echo in (one, other):
            output, errors = echo.communicate()
            assert echo.returncode == 0, errors
            got = [json.loads(line) for line in output.splitlines()]
            data = [message["data"] for message in got if message["type"] == "DATA"]
            assert data == [f"line {number}" for number in range(1000)]
    assert objects(domain) == []


_PUBLISH_AND_EXIT = """
import sys, ipcbus
context = ipcbus.Context(domain=sys.argv[1])
source = context.source("t")
for number in range(3):
    source.send(b"%d" % number)
"""


@pytest.mark.parametrize("by", ["script", pytest.param("pub", marks=pytest.mark.long)])
def test_who_waits_already_gets_what_is_published_before_an_exit(domain: str, by: str) -> None:
    """The publisher waits for nobody before it sends, and does not close anything itself."""
    with started("echo", "t", "-n", "3", "--json", "--domain", domain) as echo:
        until(lambda: receivers(domain) == ["t"], "the receiver of echo")
        if by == "script":
            subprocess.run([sys.executable, "-c", _PUBLISH_AND_EXIT, domain], check=True, timeout=GIVE_UP_S)
        else:
            with started("pub", "t", "0", "1", "2", "--wait-receivers", "0", "--json", "--domain", domain) as pub:
                report, errors = pub.communicate()
            assert (pub.returncode, json.loads(report)["unheard"], errors) == (0, 0, "")
        output, errors = echo.communicate()
        assert echo.returncode == 0, errors
        got = [json.loads(line) for line in output.splitlines()]
        assert [message["data"] for message in got if message["type"] == "DATA"] == ["0", "1", "2"]
    assert objects(domain) == []


def test_pub_says_that_it_sent_to_nobody(domain: str) -> None:
    with started("pub", "t", "0", "1", "--wait-receivers", "0", "--json", "--domain", domain) as pub:
        report, errors = pub.communicate()
    assert pub.returncode == 0
    assert json.loads(report)["unheard"] == 2
    assert errors.count("no receiver got the messages") == 1
    assert "wait_for_receivers" in errors


def test_list_of_processes(domain: str) -> None:
    with started("echo", "t", "--domain", domain) as echo:
        until(lambda: receivers(domain) == ["t"], "the receiver of echo")
        with started("list", "--domain", domain) as listing:
            output, _ = listing.communicate()
        echo.send_signal(signal.SIGINT)
        echo.communicate()
        assert f" {echo.pid} " in output
        assert "ipcbus_tools echo t" in output


def test_reader_of_the_output_goes_away(domain: str) -> None:
    with started("echo", "t", "--domain", domain) as echo, ipcbus.Context(domain=domain) as context:
        source = context.source("t")
        source.wait_for_receivers(1, GIVE_UP_S)
        assert echo.stdout is not None
        assert echo.stderr is not None
        echo.stdout.close()

        def flood() -> bool:
            source.send(b"x", flush=True)
            return echo.poll() is not None

        until(flood, "the end of echo")
        assert echo.returncode == 141
        assert echo.stderr.read() == ""
        echo.stdout = None
    assert objects(domain) == []


# ---------------------------------------------------------------------- signals


@SIGNALS
def test_signal_ends_echo(domain: str, number: int, code: int) -> None:
    with started("echo", "t", "--domain", domain) as echo:
        until(lambda: receivers(domain), "the receiver of echo")
        echo.send_signal(number)
        assert echo.communicate() == ("", "")
        assert echo.returncode == code
    assert objects(domain) == []


@ONE_SIGNAL
def test_signal_ends_pub_that_waits_for_receivers(domain: str, number: int, code: int) -> None:
    with started("pub", "t", "x", "--timeout", "600", "--domain", domain) as pub:
        until(lambda: list(stats.take_snapshot(domain).sessions), "the source of pub")
        assert pub.stderr is not None
        assert "waiting for 1 receiver" in pub.stderr.readline()  # comes after half a second
        pub.send_signal(number)
        assert pub.communicate() == ("", "")
        assert pub.returncode == code
    assert objects(domain) == []


@ONE_SIGNAL
@pytest.mark.parametrize(
    ("kind", "transport"),
    [("file", "lbtipc"), ("file", "lbtsmx"), pytest.param("archive", "lbtipc", marks=pytest.mark.long)],
)
def test_signal_ends_replay_that_waits_for_room(
    domain: str, tmp_path: Path, number: int, code: int, kind: str, transport: str
) -> None:
    file, config = tmp_path / "capture", tmp_path / "bus.toml"
    if kind == "archive":
        with Archive.create(file).writer("s") as writer:
            add(writer, [b"%d" % n for n in range(20_000)])
    else:
        file.write_bytes(b"".join(b'%d {"stream":"t","n":%d}\n' % (n, n) for n in range(20_000)))
    config.write_text(SMALL_WINDOWS)
    with ipcbus.Context(domain=domain) as context:
        receiver = context.receiver("t", receive_queue_maximum=16)  # the ring fills up behind the first messages
        arguments = ("--transport", transport, "--wait-receivers", "1", "--domain", domain, "--json")
        with started("replay", str(file), *arguments, "--config", str(config)) as replay:
            # A sleeping writer is counted when it goes on, so what does not move any more tells that it waits.
            until(lambda: _stands_still(domain), "a full ring")
            replay.send_signal(number)
            output, errors = replay.communicate()
            assert replay.returncode == code, errors
        report = json.loads(output)
        assert not report["complete"]
        assert 0 < report["messages"] < 20_000
        assert report["topics"] == {"t": report["messages"]}
        # What was sent before the signal is still there for who had joined.
        got: Counter[str] = Counter()
        while "EOS" not in got:
            message = receiver.receive(GIVE_UP_S)
            assert message is not None, got
            got[message.type.name] += 1
        assert got == {"BOS": 1, "DATA": report["messages"], "EOS": 1}
    assert objects(domain) == []


def _stands_still(domain: str) -> bool:
    before = sent(domain)
    threading.Event().wait(0.1)
    return before > 0 and sent(domain) == before


# ---------------------------------------------------------------------- demo


def test_demo_accounts_for_every_message(domain: str) -> None:
    with started("demo", "--messages", "20000", "--seconds", "0.5", "--json", "--domain", domain) as demo:
        output, errors = demo.communicate()
        assert demo.returncode == 0, errors
    found = json.loads(output)
    assert (found["balances"], found["lost"]) == (True, 0)
    assert sorted((each["receiver"], each["transport"]) for each in found["receivers"]) == [
        (f"receiver {number}", transport) for number in (1, 2, 3) for transport in ("LBT-IPC", "LBT-SMX")
    ]
    for each in found["receivers"]:
        assert each["sent"] == each["received"] > 20_000
        assert each["latency"]["count"] > 0
        assert each["latency"]["p50"] <= each["latency"]["p999"] <= each["latency"]["max"]
    assert objects(domain) == []


@pytest.mark.long  # its words are those of the unit tests, and `make demo` runs it
def test_demo_for_people(domain: str) -> None:
    with started("demo", "--messages", "2000", "--seconds", "0.3", "--domain", domain) as demo:
        output, errors = demo.communicate()
        assert demo.returncode == 0, errors
    assert "LBT-SMX" in output
    assert "p99.9" in output
    assert "\nnothing lost: " in output


@ONE_SIGNAL
def test_signal_ends_demo_and_its_processes(domain: str, number: int, code: int) -> None:
    with started("demo", "--seconds", "600", "--domain", domain) as demo:
        until(lambda: sent(domain) > 100, "the demo to send")
        pids = {slot.pid for session in stats.take_snapshot(domain).sessions for slot in session.receivers}
        assert len(pids) == 3
        demo.send_signal(number)
        output, errors = demo.communicate()
        assert (demo.returncode, output) == (code, ""), errors
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert objects(domain) == []


def test_demo_notices_a_receiver_that_dies(domain: str) -> None:
    with started("demo", "--seconds", "600", "--domain", domain) as demo:
        until(lambda: sent(domain) > 100, "the demo to send")
        pid = min(slot.pid for session in stats.take_snapshot(domain).sessions for slot in session.receivers)
        os.kill(pid, signal.SIGKILL)
        _, errors = demo.communicate()
        assert demo.returncode == 1
        assert f"(pid {pid}) ended early with code -9" in errors
    assert objects(domain) == []
