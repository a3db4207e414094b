"""Joining a session: by its ring where that can be mapped, else over UDP, else the reason is kept."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from ipcbus.config import ContextOptions, ReceiverOptions
from ipcbus.delivery.reassembly_budget import ReassemblyBudget
from ipcbus.resolution.local.adverts import Endpoint
from ipcbus.runtime.receiving.session_joining import SessionJoiner, can_fall_back
from ringbuf.ring_errors import RingError, SegmentRefused
from ringbuf.slots import Identity
from tests.kit.sessions import SMALL, Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipcbus.resolution.local.adverts import SessionAdvert
    from ipcbus.resolution.local.registry import PeerRegistry

OPTIONS = ReceiverOptions()
ENDPOINT = Endpoint("127.0.0.1", 14380)


class Joining:
    """A joiner, and a session that its source offers."""

    def __init__(self, domain: str, **options: Any) -> None:  # noqa: ANN401
        self.pair = Pair(domain, **SMALL)
        self.advert = self.pair.sending.advert
        self.network = Mock()
        # What comes over UDP is a ring too, and this one stands for it.
        self.network.join.side_effect = lambda *_, **__: self.pair.join().datagram_source
        who = Identity(os.getpid(), os.geteuid(), 9, "mine")
        self.joiner = SessionJoiner(
            domain, who, ContextOptions(options), self.network, ReassemblyBudget(), Mock(), Mock()
        )

    def registry(self, uid: int) -> PeerRegistry:
        return cast("PeerRegistry", SimpleNamespace(uid=uid, name="registry"))

    def join(self, advert: SessionAdvert | None = None, uid: int | None = None, *, here: bool = True) -> Any:  # noqa: ANN401
        registry = self.registry(os.geteuid() if uid is None else uid) if here else None
        session = self.joiner.join(advert or self.advert, registry, OPTIONS, 5)
        if session is not None:
            self.pair.receiving.append(session)
        return session

    @property
    def readers(self) -> int:
        return self.pair.sending.channel.slots.active_mask().bit_count()


@pytest.fixture
def joining(domain: str) -> Iterator[Joining]:
    made = Joining(domain)
    yield made
    made.pair.close()


def test_a_session_of_the_same_user_is_joined_by_its_ring(joining: Joining) -> None:
    session = joining.join()
    assert (session.owner_pid, session.reason, joining.readers) == (os.getpid(), "", 1)
    joining.network.join.assert_not_called()
    assert joining.joiner.refused == {}


def test_the_memory_of_another_user_is_not_mapped_without_a_group(joining: Joining, domain: str) -> None:
    assert joining.join(uid=os.geteuid() + 1) is None
    assert joining.readers == 0
    pid, reason = joining.joiner.refused[joining.advert]
    assert pid == 5
    assert "shared_memory_group" in reason
    joining.join()
    assert joining.joiner.refused == {}  # what is joined is refused no more


def test_with_a_group_the_memory_of_another_user_is_mapped_if_it_is_that_user_s(domain: str) -> None:
    joining = Joining(domain, shared_memory_group="users")
    other = os.geteuid() + 1
    with pytest.raises(RingError) as caught:  # the ring belongs to this user
        joining.joiner.over_ring(joining.advert, joining.registry(other))
    assert f"uid {other}" in str(caught.value)
    assert "shared_memory_group" not in str(caught.value)
    joining.pair.close()


def test_a_session_of_another_host_is_received_over_udp_where_its_source_and_receiver_allow(joining: Joining) -> None:
    assert joining.join(here=False) is None
    assert "on another host" in joining.joiner.refused[joining.advert][1]
    twin = dataclasses.replace(joining.advert, endpoint=ENDPOINT)
    session = joining.join(twin, here=False)
    joining.network.join.assert_called_once_with(twin, OPTIONS, resume_at=None)
    assert "on another host" in session.reason
    assert not can_fall_back(twin, ReceiverOptions({"use_udp_fallback": 0}))


def test_a_reason_is_logged_once_until_it_changes(joining: Joining, caplog: pytest.LogCaptureFixture) -> None:
    twin = dataclasses.replace(joining.advert, endpoint=ENDPOINT)
    with caplog.at_level(logging.WARNING, "ipcbus"):
        for reason in ("one", "one", "other"):
            joining.network.join.side_effect = SegmentRefused(reason)
            joining.join(twin, here=False)
    texts = [record.getMessage() for record in caplog.records if "cannot be joined" in record.getMessage()]
    assert [text.rpartition(" ")[2] for text in texts] == ["one", "other"]
    joining.joiner.keep([joining.advert])
    assert joining.joiner.refused == {}


def test_a_ring_that_is_gone_is_waited_for_before_udp_takes_its_place(
    joining: Joining, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = time.monotonic_ns()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    closed = dataclasses.replace(joining.advert, local=77, endpoint=ENDPOINT)
    assert joining.join(closed) is None
    now_ns += 499_999_999
    assert joining.join(closed) is None
    joining.network.join.assert_not_called()
    now_ns += 1
    assert joining.join(closed) is not None
    joining.network.join.assert_called_once()
