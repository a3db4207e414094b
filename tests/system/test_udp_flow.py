"""Flow control over networks: a receiver in a process that is stopped under full load loses nothing."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.kit.bus import LBTIPC, LBTRM, LBTRU, LBTTCP, Kind
from tests.kit.network import isolated_or_skip
from tests.kit.payload import balanced
from tests.kit.peers import Peers, joined, settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.peers import PeerProcess
    from tests.kit.zygote import Zygote

COUNT = 200_000


@pytest.fixture
def pair(zygote: Zygote, domain: str, kind: Kind) -> Iterator[Peers]:
    """Processes for a source and a receiver."""
    with contextlib.ExitStack() as stack:
        if kind is LBTRM:
            stack.enter_context(isolated_or_skip())
        found = Peers(stack.enter_context(type(zygote)()) if kind is LBTRM else zygote, domain)
        stack.callback(found.clear)
        yield found


KINDS = [
    pytest.param(LBTRU, id="lbtru"),
    pytest.param(LBTRM, id="lbtrm"),
    pytest.param(LBTTCP, id="lbttcp"),
    pytest.param(LBTIPC, id="fallback", marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can")),
]


def meet(pair: Peers, kind: Kind) -> tuple[PeerProcess, PeerProcess, str]:
    """A source and a receiver in processes of their own, joined, and the source string; over LBT-IPC it falls back."""
    limits = {f"transport_lbtrm_{name}_rate_limit": 0 for name in ("data", "retransmit")} if kind is LBTRM else {}
    sender = pair.start("embedded", "sender", **kind.context_options, **limits)
    receiver = pair.start("")
    if kind is LBTIPC:  # another user may not map the ring
        receiver.do("become", uid=65534, gid=65534)
    receiver.do("open", domain=pair.domain, mode="embedded", name="receiver", **kind.context_options)
    return sender, receiver, joined(sender, [receiver], {"transport": kind.transport}, {})


def send_all(sender: PeerProcess, receiver: PeerProcess, source: str, count: int, pause: float) -> float:
    """Sends at full load while the receiver is stopped for a time; returns the seconds until all has come."""
    sent = sender.do("used", topic="t")
    begun = time.monotonic()
    sender.start("send", topic="t", count=count)
    if pause:
        receiver.pause()
        threading.Event().wait(pause)  # the pause that is tested
        receiver.resume()
    assert sender.finish() == sent + count
    ledger = settled(receiver, "t", source, sent + count)
    assert (ledger.delivered, ledger.lost) == (sent + count, 0)
    return time.monotonic() - begun


@pytest.mark.parametrize(
    "seconds", [0.1, pytest.param(1, marks=pytest.mark.long), pytest.param(5, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_receiver_that_is_stopped_loses_nothing(pair: Peers, kind: Kind, seconds: float) -> None:
    sender, receiver, source = meet(pair, kind)
    without = send_all(sender, receiver, source, COUNT, 0) if seconds >= 1 else 0
    took = send_all(sender, receiver, source, COUNT, seconds)
    print(f"{kind.name}: {COUNT} messages in {without:.2f} s, with a pause of {seconds} s in {took:.2f} s")


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", [15, 90])
@pytest.mark.parametrize("kind", KINDS)
def test_a_receiver_that_is_stopped_past_its_timeouts_has_or_is_told_each_number(
    pair: Peers, kind: Kind, seconds: int
) -> None:
    """The source lets it go after 10 s; a receiver that was stopped for 90 s finds its session silent."""
    sender, receiver, source = meet(pair, kind)
    sender.do("stream", topic="t", pause=0.0005, size=1000)
    threading.Event().wait(1)
    receiver.pause()
    threading.Event().wait(seconds)  # the pause that is tested
    receiver.resume()
    threading.Event().wait(5)
    sent = sender.do("halt")["t"]
    receiver.do("await_messages", topic="t", count=sent)
    ledger = receiver.ledger("t", source)
    print(kind.name, seconds, "s:", sent, "sent", ledger.delivered, "delivered", ledger.lost, "lost")
    balanced(ledger, sent, joins=ledger.begun)
    assert ledger.delivered > 0
    # What is sent after that comes as if nothing had been.
    sent = sender.do("send", topic="t", count=1000)
    receiver.do("await_messages", topic="t", count=sent)
    balanced(after := receiver.ledger("t", source), sent, joins=ledger.begun)
    assert after.lost == ledger.lost
