"""Processes in namespaces of their own, as containers have, that share /dev/shm: docs/how-to/containers.md."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import ipcbus
from ipcbus import MessageType
from tests.kit.bus import GIVE_UP_S
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

RECEIVES = """
import sys
import ipcbus
with ipcbus.Context(domain=sys.argv[1]) as context:
    receiver = context.receiver("t")
    for message in receiver:
        if message.type is ipcbus.MessageType.DATA:
            print(message.data.decode(), receiver.sessions[0].layer, flush=True)
"""
OF_ITS_OWN = ["--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"]


@pytest.fixture(params=[[], ["--user", "--map-root-user"]], ids=["namespaces", "and-users"])
def container(request: pytest.FixtureRequest, domain: str) -> Iterator[subprocess.Popen[str]]:
    """A receiver in namespaces of its own; the first process there, so that it has the number 1."""
    command = ["unshare", *request.param, *OF_ITS_OWN]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this process may not make such namespaces")
    with subprocess.Popen(
        [*command, sys.executable, "-c", RECEIVES, domain], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.timeout(180)
def test_a_container_with_the_same_shm_reads_the_ring_and_its_death_is_noticed(
    container: subprocess.Popen[str], domain: str
) -> None:
    assert container.stdout is not None
    gone = ipcbus.SourceEventType.DISCONNECT
    events: ipcbus.Queue[ipcbus.SourceEventType] = ipcbus.Queue()
    with ipcbus.Context(domain=domain) as context:
        source = context.source("t", on_event=lambda event: events.put(event.type))
        own = context.receiver("t", events=False)
        source.wait_for_receivers(2, GIVE_UP_S)
        source.send(b"hello", flush=True)
        assert container.stdout.readline() == "hello ring\n"
        message = own.receive(GIVE_UP_S)
        assert message is not None
        assert message.type is MessageType.DATA
        container.kill()
        while events.get(timeout=GIVE_UP_S) is not gone:
            pass
