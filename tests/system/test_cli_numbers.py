"""The commands that read numbers: `hz`, `bw`, `delay`, `info`, `stats`, and what all print with --json."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from click.testing import CliRunner

import ipcbus
from ipcbus import stats
from ipcbus.resolution.local.stale_cleanup import sweep
from ipcbus_tools.cli import cli
from ipcbus_tools.json_schemas import FOLDER
from tests.kit.bus import GIVE_UP_S
from tests.kit.look import objects
from tests.kit.waiting import repeated, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

    from ipcbus import Context, Source

NOBODY = 65534
QUICK = ("--interval", "0.05")


def run(*arguments: str) -> Result:
    """Runs `ipcbus` with these arguments."""
    return CliRunner().invoke(cli, arguments)


def documents(schema: str, *arguments: str) -> list[Any]:
    """What a command prints with --json, each line of it under its schema."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert found
    for document in found:
        fits(schema, document)
    return found


def fits(schema: str, document: object) -> None:
    """Fails when a document is not as its schema says."""
    jsonschema.validate(document, json.loads((FOLDER / f"{schema}.json").read_text()), jsonschema.Draft202012Validator)


@pytest.fixture
def context(domain: str) -> Iterator[Context]:
    with ipcbus.Context(domain=domain, name="a [bold]name") as found:
        yield found


@contextmanager
def busy(*sources: Source) -> Iterator[None]:
    """Sources that send 40 bytes again and again."""

    def send() -> None:
        for source in sources:
            source.send(bytes(40), flush=True)

    with repeated(send, 0.001):
        yield


@pytest.fixture
def source(context: Context) -> Source:
    """A source with a receiver that reads everything."""
    context.receiver("ticks", lambda message: None)
    found = context.source("ticks")
    found.wait_for_receivers(1, GIVE_UP_S)
    return found


# ---------------------------------------------------------------------- hz, bw, delay


@pytest.mark.parametrize("command", ["hz", "bw"])
def test_rates_of_a_source(domain: str, source: Source, command: str) -> None:
    # More looks than this test needs: the thread that sends may not run in one of them.
    with busy(source):
        *_, last = documents("rate", command, "ticks", "-n", "8", *QUICK, "--domain", domain)
    assert last["flow"]["count"] > 0
    assert last["flow"]["message_bytes"] == 40
    assert last["flow"]["bytes"]["mean"] == pytest.approx(40 * last["flow"]["messages"]["mean"], rel=0.2)
    (only,) = last["sources"]
    assert (only["source"], only["pid"], only["state"]) == (source.source, os.getpid(), "")


def test_rates_of_two_sessions_and_of_none_that_receives(domain: str, context: Context) -> None:
    one, other = context.source("ticks"), context.source("ticks", transport="lbtsmx")
    with busy(one, other):
        lines = run("hz", "ticks", "-n", "2", *QUICK, "--domain", domain).stdout.splitlines()
        *_, last = documents("rate", "hz", "ticks", "-n", "8", *QUICK, "--domain", domain)
    assert [line.split()[0] for line in lines] == ["ticks", one.source, other.source] * 2
    assert last["flow"]["count"] == sum(each["flow"]["count"] for each in last["sources"]) > 0
    assert next(iter(stats.take_snapshot(domain).sessions)).receivers == ()


def test_nobody_notices_who_looks(domain: str, source: Source) -> None:
    for command in ("hz", "bw", "delay"):
        assert run(command, "ticks", "-n", "2", *QUICK, "--domain", domain).exit_code == 0
    for command in ("info", "stats"):
        assert run(command, "ticks", *QUICK, "--domain", domain).exit_code == 0
    found = stats.take_snapshot(domain)
    assert len(found.contexts) == 1
    (session,) = found.sessions
    assert [(slot.slot, slot.generation) for slot in session.receivers] == [(0, session.receivers[0].generation)]


def test_delay(domain: str, source: Source) -> None:
    source.send(b"x", flush=True)
    with busy(source):
        looks = documents("delay", "delay", "ticks", "-n", "8", *QUICK, "--domain", domain)
        result = run("delay", "ticks", "-n", "1", *QUICK, "--domain", domain)
    # Of a machine that is busy one look alone may have seen nothing: a datagram in 16 is timed.
    readers = [reader for look in looks for reader in look["receivers"] if reader["recent"]]
    reader = max(readers, key=lambda each: each["recent"]["count"])
    assert (reader["source"], reader["pid"], reader["state"]) == (source.source, os.getpid(), "active")
    assert reader["latency"]["count"] >= reader["recent"]["count"] > 0
    assert reader["latency"]["p50_ns"] <= reader["latency"]["p99.9_ns"] <= reader["latency"]["max_ns"]
    (note,) = result.stderr.splitlines()
    assert note.startswith("note: a latency is that of the whole session, from sending a message to reading it")
    assert len(note) <= 100
    assert f"{source.source} -> pid {os.getpid()} " in result.stdout
    assert "since it joined p50 " in result.stdout


@pytest.mark.parametrize("command", ["hz", "bw", "delay"])
def test_no_such_topic(domain: str, source: Source, command: str) -> None:
    result = run(command, "tick", "--timeout", "0.5", "--domain", domain)
    assert (result.exit_code, result.stdout) == (1, "")
    waiting, error = result.stderr.splitlines()
    assert waiting.startswith("topic 'tick' has no source")
    assert "did you mean ticks?" in waiting
    assert error.startswith("error: topic 'tick': no source in 0.5 s")


def test_topic_that_comes_later_and_ends(domain: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "ipcbus_tools", "hz", "ticks", *QUICK, "--domain", domain],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as hz:
        assert hz.stdout is not None
        assert hz.stderr is not None
        try:
            assert "waiting for one" in hz.stderr.readline()
            with ipcbus.Context(domain=domain) as context, busy(context.source("ticks")):
                assert hz.stdout.readline().startswith("ticks  ")
            assert any(line == "ticks  no source\n" for line in hz.stdout)
            hz.send_signal(signal.SIGINT)
            _, errors = hz.communicate()
            assert (hz.returncode, errors) == (130, "")
        finally:
            hz.kill()
    assert objects(domain) == []


# ---------------------------------------------------------------------- info, stats


def test_info(domain: str, source: Source) -> None:
    source.send(b"12345", flush=True)
    (found,) = documents("info", "info", "ticks", *QUICK, "--domain", domain)
    assert found["session"]["source"] == source.source
    assert found["session"]["counters"]["lbm_msgs_sent"] == 1
    assert (found["session"]["held_up_by"], found["absent"]) == (None, [])
    shown = run("info", source.source.split(":")[1], *QUICK, "--domain", domain).stdout
    for text in (source.source, f"pid {os.getpid()} (", "a [bold]name", "receiver-paced", "held up     no", "ticks"):
        assert text in shown


def test_info_and_list_name_who_holds_the_source_up(domain: str) -> None:
    options = {
        "context": {"transport_lbtipc_datagram_max_size": 8192},
        "source": {"transport_lbtipc_transmission_window_size": 65536},
    }
    with ipcbus.Context(options, domain=domain) as context:
        context.receiver("ticks", receive_queue_maximum=1)  # the ring fills up behind the first message
        source = context.source("ticks")
        source.wait_for_receivers(1, GIVE_UP_S)
        with pytest.raises(ipcbus.WouldBlock):
            while True:
                source.send(bytes(4000), block=False, flush=True)
        (found,) = documents("info", "info", "ticks", *QUICK, "--domain", domain)
        assert found["session"]["wait"] == "refused"
        assert found["session"]["held_up_by"] == found["session"]["receivers"][0]["slot"]
        told = rf"found no room, and the source waits for its WAKEUP(, for at least \S+ \w+)?, by pid {os.getpid()} \("
        assert re.search(told, run("info", "ticks", *QUICK, "--domain", domain).stdout)
        listed = run("list", "-v", "--domain", domain).stdout
        assert "refused" in listed
        assert f"pid {os.getpid()} (" in listed


@pytest.mark.parametrize("command", ["info", "stats"])
def test_no_such_session(domain: str, source: Source, command: str) -> None:
    result = run(command, "tickz", "--domain", domain)
    assert result.exit_code == 1
    assert "did you mean ticks?" in result.stderr
    assert source.source in result.stderr


def test_stats(domain: str, source: Source) -> None:
    with busy(source):
        (found,) = documents("stats", "stats", source.source, "--interval", "0.3", "--domain", domain)
    counters = {(line["of"], line["name"]): line for line in found["counters"]}
    sent = counters["session", "lbm_msgs_sent"]
    assert sent["value"] > 0
    assert sent["per_second"] > 0
    assert counters["source", "bytes_sent"]["topic"] == "ticks"
    assert found["receivers"][0]["latency"]["count"] > 0
    shown = run("stats", source.source, "--all", *QUICK, "--domain", domain).stdout
    for row in stats.COUNTERS:
        of_others = row.of in ("context", "receiver", "uplink", "reception", "recorder")
        assert of_others or (row.name in shown and row.meaning in shown)
    assert "left out" not in shown


def test_stats_for_people_leaves_out_what_is_zero(domain: str, source: Source) -> None:
    source.send(b"x", flush=True)
    shown = run("stats", "ticks", *QUICK, "--domain", domain).stdout
    rows = {line.split()[0]: line.split()[1] for line in shown.splitlines() if len(line.split()) > 2}
    assert rows["lbm_msgs_sent"] == "1"
    assert "blocked_ns" not in rows
    assert re.search(r"^\d+ counters of value 0 left out; --all prints all counters$", shown, re.MULTILINE)
    (found,) = documents("stats", "stats", "ticks", *QUICK, "--domain", domain)
    assert 0 in [line["value"] for line in found["counters"]]


@pytest.mark.parametrize(("transport", "over"), [("tcp", "TCP"), ("lbtru", "UDP")])
def test_stats_and_info_name_what_a_session_runs_over(domain: str, context: Context, transport: str, over: str) -> None:
    network = context.source("net", transport=transport)
    receiver = context.receiver("net")
    network.wait_for_receivers(1, GIVE_UP_S)
    network.send(b"x", flush=True)
    assert receiver.receive(GIVE_UP_S)
    shown = run("stats", "net", "--all", *QUICK, "--domain", domain).stdout
    assert f"\nsession over {over}\n" in shown
    assert set(re.findall(r"over (UDP|TCP)$", shown, re.MULTILINE)) == {over}
    # Sessions over the network show their clients a few times a second.
    until(lambda: told(domain, over), "the receiver in what the source shows")


def told(domain: str, over: str) -> bool:
    """Whether `ipcbus info` names the network and its one receiver."""
    shown = run("info", "net", *QUICK, "--domain", domain).stdout
    return re.search(rf"^ +over {over} .*, 1 of \d+ receivers$", shown, re.MULTILINE) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_session_of_another_user_is_told_with_its_reason(domain: str, source: Source) -> None:
    # What is imported late could not be read any more: the interpreter may belong to root alone.
    code = (
        "import os, sys, rich.table, rich.console, importlib, ipcbus.stats.serialization, ipcbus_tools.top.table; "
        "from ipcbus_tools import cli; "
        "[importlib.import_module(cli.module_of(name)) for name in cli.COMMANDS]; "
        "rich.console.Console(file=open(os.devnull, 'w')).print('x', style='bold'); "
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); cli.main()"
    )

    def stranger(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *arguments, "--domain", domain]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Traceback" not in found.stderr
        return found

    shown = stranger("info", "ticks", *QUICK)
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"state +not readable: .*[Pp]ermission", shown.stdout)
    refused = stranger("stats", "ticks", *QUICK)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"error: {source.source} is not readable: " in refused.stderr
    rate = stranger("hz", "ticks", "-n", "1", *QUICK)
    assert rate.stdout.startswith("ticks  not readable\n")
    assert "not readable" in stranger("list", "-v").stdout


def test_damaged_session_is_told_with_its_reason(domain: str, source: Source) -> None:
    (ring,) = (name for name in objects(domain) if name.rpartition(".")[2].startswith("r"))
    path = Path("/dev/shm", ring)
    fd = os.open(path, os.O_RDWR)
    saved = os.pread(fd, 8, 0)
    os.pwrite(fd, bytes(8), 0)
    try:
        (found,) = documents("info", "info", source.source, *QUICK, "--domain", domain)
        assert "is not a ring of ipcbus" in found["session"]["reason"]
        shown = run("info", source.source, *QUICK, "--domain", domain).stdout
        assert "not readable: " in shown
        result = run("stats", source.source, *QUICK, "--domain", domain)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "is not a ring of ipcbus" in result.stderr
        (line,) = documents("rate", "hz", "ticks", "-n", "1", *QUICK, "--domain", domain)
        assert line["flow"] is None
        (line,) = documents("delay", "delay", "ticks", "-n", "1", *QUICK, "--domain", domain)
        assert source.source in line["unreadable"]
        assert "not readable" in run("list", "-v", "--domain", domain).stdout
    finally:
        os.pwrite(fd, saved, 0)
        os.close(fd)


def test_killed_owner_is_shown_as_dead(domain: str) -> None:
    pub = subprocess.Popen(
        [sys.executable, "-m", "ipcbus_tools", "pub", "ticks", "x", "--wait-receivers", "1", "--domain", domain],
        stdout=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        # It has its source as soon as the topic is found.
        assert run("hz", "ticks", "-n", "1", *QUICK, "--timeout", str(GIVE_UP_S), "--domain", domain).exit_code == 0
    finally:
        pub.kill()
        pub.wait()
    for command in ("hz", "delay"):
        result = run(command, "ticks", "-n", "1", *QUICK, "--domain", domain)
        assert result.exit_code == 0, result.output
        assert command == "delay" or re.search(rf"LBT-IPC:\S+ pid {pub.pid}  dead", result.stdout)
    (found,) = documents("info", "info", "ticks", *QUICK, "--domain", domain)
    assert found["session"]["alive"] is False
    assert re.search(r"state +dead", run("info", "ticks", *QUICK, "--domain", domain).stdout)
    assert re.search(rf"{pub.pid} .* dead ", run("list", "--domain", domain).stdout)
    sweep(domain)


def test_a_stopped_process_is_told(domain: str, context: Context) -> None:
    ticks = context.source("ticks")
    echo = subprocess.Popen(
        [sys.executable, "-m", "ipcbus_tools", "echo", "ticks", "--domain", domain],
        stdout=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        ticks.wait_for_receivers(1, GIVE_UP_S)
        echo.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, echo.pid, os.WSTOPPED)
        assert len(re.findall(rf"\b{echo.pid} .* stopped ", run("list", "-v", "--domain", domain).stdout)) == 3
        assert "stopped" in run("info", "ticks", *QUICK, "--domain", domain).stdout
    finally:
        echo.kill()
        echo.wait()
    sweep(domain)


# ---------------------------------------------------------------------- schemas of the rest


def test_list_and_top_print_snapshots(domain: str, source: Source) -> None:
    with busy(source):
        documents("snapshot", "list", "--domain", domain)
        documents("snapshot", "top", "--once", *QUICK, "--domain", domain)
    (everything,) = (json.loads(line) for line in run("list", "--all", "--json").stdout.splitlines())
    (mine,) = (each for each in everything if each["domain"] == domain)
    fits("snapshot", mine)


def test_echo_prints_messages_and_events(domain: str, context: Context) -> None:
    source = context.source("ticks")

    def send() -> None:
        source.wait_for_receivers(1, GIVE_UP_S)
        source.send_many([b"text", b"\xff"], flush=True)

    thread = threading.Thread(target=send)
    thread.start()
    found = documents("echo", "echo", "ticks", "-n", "2", "--domain", domain)
    thread.join()
    assert [each["type"] for each in found] == ["BOS", "DATA", "DATA"]
