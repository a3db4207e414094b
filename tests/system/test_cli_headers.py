"""Message headers on the command line: `pub --header` sends them, `echo` shows them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageType
from tests.kit.bus import GIVE_UP_S
from tests.system.test_cli_numbers import documents, run

if TYPE_CHECKING:
    from ipcbus import Message


def test_pub_sends_them_with_each_message(domain: str) -> None:
    with ipcbus.Context(domain=domain) as ctx:
        receiver = ctx.receiver("t")
        result = run("pub", "t", "one", "two", "--header", "key=A=1", "--header", "key=", "--domain", domain)
        assert result.exit_code == 0, result.output
        found: list[Message] = []
        while len(found) < 2:
            message = receiver.receive(GIVE_UP_S)
            assert message is not None
            found += [message] * (message.type is MessageType.DATA)
    assert [message.data for message in found] == [b"one", b"two"]
    assert [message.headers for message in found] == [(("key", b"A=1"), ("key", b""))] * 2


@pytest.mark.parametrize(
    ("header", "said"),
    [("key", "has no '='; write NAME=VALUE"), ("=value", "must have 1 to 255"), ("key=" + "x" * 65_535, "65535")],
)
def test_what_is_no_header_is_refused(domain: str, header: str, said: str) -> None:
    result = run("pub", "t", "one", "--header", header, "--domain", domain)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_echo_shows_them_as_its_schema_says(domain: str) -> None:
    with ipcbus.Context(domain=domain) as ctx:
        source = ctx.source("t")

        def send() -> None:
            source.wait_for_receivers(1, GIVE_UP_S)
            source.send(b"value", headers={"key": b"AAPL", "trace": b"\xff"}, flush=True)

        thread = threading.Thread(target=send)
        thread.start()
        *_, shown = documents("echo", "echo", "t", "-n", "1", "--domain", domain)
        thread.join()
    assert shown["headers"] == [{"key": "key", "data": "AAPL"}, {"key": "trace", "hex": "ff"}]
