"""Sockets of loopback."""

from __future__ import annotations

import socket


def bound() -> socket.socket:
    """Returns a socket of loopback over UDP, with a port of its own."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    return sock
