"""Packets over UDP that tests see before their receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.transport.udp.udp_receiver import UdpReceiver

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def replace_receive(monkeypatch: pytest.MonkeyPatch, receive: Callable[..., None]) -> None:
    """Has every packet that comes to a receiver go to `receive`, also the usual ones, which otherwise do not."""
    monkeypatch.setattr(UdpReceiver, "take_datagrams", lambda *given: 0)
    monkeypatch.setattr(UdpReceiver, "_direct", lambda receiver: None)
    monkeypatch.setattr(UdpReceiver, "receive", receive)
