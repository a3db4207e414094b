"""What a child after a fork may do with the handles of its parent: nothing, and that is said."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

import ipcbus
from tests.kit.bus import GIVE_UP_S
from tests.kit.payload import body

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.peer import Peer


def uses(peer: Peer) -> dict[str, Callable[[], object]]:
    """Every use of a context, a source and a receiver that the child may try."""
    context = peer.context
    assert context is not None
    found: dict[str, Callable[[], object]] = {
        "context.source": lambda: context.source("x"),
        "context.receiver": lambda: context.receiver("x"),
        "context.process_events": lambda: context.process_events(0),
        "context.fileno": context.fileno,
    }
    for source in peer.sources.values():
        found |= {
            "source.send": lambda source=source: source.send(b"x"),  # type: ignore[misc]
            "source.send_many": lambda source=source: source.send_many([b"x"]),  # type: ignore[misc]
            "source.acquire": lambda source=source: source.acquire(1).__enter__(),  # type: ignore[misc]
            "source.flush": source.flush,
            "source.wait_for_receivers": lambda source=source: source.wait_for_receivers(1, 0),  # type: ignore[misc]
        }
    for receiver in peer.receivers.values():
        rows = np.zeros((1, 1), np.uint8)
        found |= {
            "receiver.receive": lambda receiver=receiver: receiver.receive(0),  # type: ignore[misc]
            "receiver.receive_many": lambda receiver=receiver: receiver.receive_many(1, 0),  # type: ignore[misc]
            "receiver.receive_into": lambda receiver=receiver, rows=rows: receiver.receive_into(rows, 0),  # type: ignore[misc]
            "receiver.areceive": lambda receiver=receiver: asyncio.run(receiver.areceive()),  # type: ignore[misc]
            "receiver.sessions": lambda receiver=receiver: receiver.sessions,  # type: ignore[misc]
        }
    return found


def tried(peer: Peer) -> dict[str, str]:
    """What each use raised; closing raises nothing."""
    answers = {}
    for name, use in uses(peer).items():
        try:
            use()
        except Exception as error:
            answers[name] = type(error).__name__
        else:
            answers[name] = ""
    for handle in (*peer.sources.values(), *peer.receivers.values(), peer.context):
        if handle is not None:
            handle.close()
    return answers


def fresh(domain: str) -> str:
    """Sends and receives a message in a new context of this process."""
    with ipcbus.Context(domain=domain) as context:
        receiver = context.receiver("of the child")
        source = context.source("of the child")
        source.wait_for_receivers(1, GIVE_UP_S)
        source.send(b"hello", flush=True)
        messages = [receiver.receive(GIVE_UP_S), receiver.receive(GIVE_UP_S)]
    return "fine" if messages[1] is not None and messages[1].data == b"hello" else repr(messages)


def _child(peer: Peer, answer: int) -> None:
    signal.alarm(int(GIVE_UP_S))  # a use that hangs ends the child
    assert peer.context is not None
    told = tried(peer)
    told["a context of its own"] = fresh(peer.context.domain)
    os.write(answer, json.dumps(told).encode())
    os.close(answer)


def fork(peer: Peer, how: str) -> dict[str, Any]:
    """See `Peer.fork`."""
    read_end, write_end = os.pipe()
    if how == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=_child, args=(peer, write_end))
        process.start()
        pid = process.pid
        assert pid is not None
    else:
        process = None
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            _child(peer, write_end)
            if how == "stays":
                os.close(0)
                os.close(1)
                signal.pause()
            if how == "_exit":
                os._exit(0)
            sys.exit()
    os.close(write_end)
    with os.fdopen(read_end, "rb") as answers:
        told: dict[str, Any] = json.loads(answers.read() or b'{"hung": ""}')
    if process is not None:
        process.join()
        told["exit"] = process.exitcode
    elif how == "stays":
        told["pid"] = pid
    else:
        told["exit"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return told


def fork_in_acquire(source: ipcbus.Source) -> dict[str, Any]:
    """See `Peer.fork_in_acquire`."""
    message = body(source.sequence_number + 1)
    read_end, write_end = os.pipe()
    with source.acquire(len(message)) as place:
        pid = os.fork()
        if pid:
            os.close(write_end)
            place[:] = message
    if not pid:
        told = ""
        try:
            source.send(b"x")
        except ipcbus.IpcBusError as error:
            told = type(error).__name__
        os.write(write_end, told.encode())
        os._exit(0)
    with os.fdopen(read_end, "rb") as answers:
        child = answers.read().decode()
    return {"child": child, "exit": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}
