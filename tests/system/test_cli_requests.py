"""`ipcbus request` and `ipcbus respond` as processes, and with the bus of the test."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

import ipcbus
from ipcbus import MessageType
from ipcbus_tools.cli import cli
from tests.system.test_cli_processes import started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

    from ipcbus import Message


SOON_S = "1.5"
"""Enough for a shell to start, and for a response to come, on a busy machine too."""


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin)


@pytest.fixture
def answering(domain: str) -> Iterator[None]:
    """Two receivers that answer."""

    def answer(message: Message) -> None:
        if message.type is MessageType.REQUEST:
            message.respond(message.data.upper() if message.data != b"\xff" else b"\xfe")

    with ipcbus.Context(domain=domain) as context:
        context.receiver("t", answer)
        yield


@pytest.mark.usefixtures("answering")
def test_request_prints_the_response(domain: str) -> None:
    result = run("request", "t", "hello", "--domain", domain)
    assert (result.exit_code, result.stdout_bytes) == (0, b"HELLO\n")
    result = run("request", "t", "-", "--domain", domain, "--hex", stdin=b"\xff")
    assert (result.exit_code, result.stdout) == (0, "fe\n")


@pytest.mark.usefixtures("answering")
def test_request_prints_json(domain: str) -> None:
    (found,) = map(json.loads, run("request", "t", "a", "--domain", domain, "--json").stdout.splitlines())
    assert found == {"topic": "t", "length": 1, "data": "A"}
    (found,) = map(
        json.loads, run("request", "t", "-", "--domain", domain, "--json", stdin=b"\xff").stdout.splitlines()
    )
    assert found == {"topic": "t", "length": 1, "hex": "fe"}


@pytest.mark.usefixtures("answering")
def test_request_takes_all_that_come_in_time(domain: str) -> None:
    result = run("request", "t", "a", "-n", "0", "--timeout", SOON_S, "--domain", domain)
    assert (result.exit_code, result.stdout) == (0, "A\n")
    result = run("request", "t", "a", "-n", "2", "--timeout", SOON_S, "--domain", domain)
    assert (result.exit_code, result.stdout) == (1, "A\n")
    assert "1 of 2 responses" in result.stderr


@pytest.mark.usefixtures("answering")
def test_all_responders_get_a_request_for_several_responses(domain: str) -> None:
    for number in range(3):
        with ipcbus.Context(domain=domain) as context:
            context.receiver("t", lambda m: m.respond(b"B") if m.type is MessageType.REQUEST else None)
            result = run("request", "t", "a", "-n", "2", "--timeout", "30", "--domain", domain)
        assert (result.exit_code, sorted(result.stdout.split())) == (0, ["A", "B"]), number


def test_request_without_a_receiver_fails(domain: str) -> None:
    for more in ((), ("-n", "0")):
        result = run("request", "t", "a", "--timeout", "0.1", "--domain", domain, *more)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "start a receiver" in result.stderr


def test_respond_runs_a_command_for_each_request(domain: str) -> None:
    line = "read word; test $word != fail || exit 3; echo $IPCBUS_TOPIC $word"
    with (
        started("respond", "t", "--exec", line, "-n", "3", "--json", "--domain", domain) as respond,
        ipcbus.Context(domain=domain) as context,
    ):
        source = context.source("t")
        source.wait_for_receivers(1, 30)
        assert source.request(b"one\n", timeout=30).data == b"t one\n"
        with pytest.raises(ipcbus.RequestTimeout):
            source.request(b"fail\n", timeout=1)
        assert source.request(b"two\n", timeout=30).data == b"t two\n"
        out, _ = respond.communicate(timeout=30)
    found = [json.loads(each) for each in out.splitlines()]
    assert [each["answered"] for each in found] == [True, False, True]
    assert [each["response_length"] for each in found] == [6, 0, 6]
    assert "exit code 3" in found[1]["problem"]
    assert respond.returncode == 0


@pytest.mark.parametrize(
    ("line", "more", "problem"),
    [
        ("exit 1", (), "exit code 1"),
        ("exec sleep 1000", ("--timeout", "0.2"), "was killed; raise --timeout"),
    ],
)
def test_respond_says_that_a_command_fails_or_takes_too_long(
    domain: str, line: str, more: tuple[str, ...], problem: str
) -> None:
    with (
        started("respond", "t", "--exec", line, "-n", "1", "--domain", domain, *more) as respond,
        ipcbus.Context(domain=domain) as context,
    ):
        source = context.source("t")
        source.wait_for_receivers(1, 30)
        with source.requests(b"x", lambda _: None):
            _, err = respond.communicate(timeout=30)
    assert problem in err
    assert respond.returncode == 0


@pytest.mark.parametrize(
    ("stubborn", "how"),
    [
        *((True, how) for how in ("sigterm", "timeout")),
        (False, "sigint"),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in ((True, "sigint"), (False, "sigterm"), (False, "timeout"))
        ),
    ],
)
def test_respond_leaves_no_command_behind(domain: str, tmp_path: Path, how: str, stubborn: bool) -> None:
    """The shell and its child hold a FIFO open until both have ended."""
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    line = f"{'trap : TERM; ' if stubborn else ''}exec 3>'{fifo}'; echo begun >&3; sleep 1000; sleep 1000"
    more = ("--timeout", SOON_S) if how == "timeout" else ()
    with (
        started("respond", "t", "--exec", line, "--domain", domain, *more) as respond,
        ipcbus.Context(domain=domain) as context,
    ):
        source = context.source("t")
        source.wait_for_receivers(1, 30)
        with source.requests(b"x", lambda _: None):
            with fifo.open() as held:
                assert held.readline() == "begun\n"
                if how != "timeout":
                    respond.send_signal(signal.SIGTERM if how == "sigterm" else signal.SIGINT)
                assert held.read() == ""
            if how == "timeout":
                respond.send_signal(signal.SIGTERM)
            respond.communicate(timeout=30)
    assert respond.returncode == (130 if how == "sigint" else 143)
