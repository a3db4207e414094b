"""The way back to the context that sent a request: conversion from values to bytes and back, safe for any bytes.

A process hands these bytes to another one, which answers in its place. Numbers are in network byte order::

     0         1            2              3              4               8              12
    +---------+------------+--------------+--------------+---------------+--------------+------
    | version | transport  | family       | length       | session id    | local        | ...
    +---------+------------+--------------+--------------+---------------+--------------+------
     12                    20                    28          30
    +---------------------+---------------------+-----------+------------------+-----------
    | context id          | request             | port      | address          | domain
    +---------------------+---------------------+-----------+------------------+-----------

`length` is that of the domain, in bytes of UTF-8. `family` says how many bytes the address has: 4 or 6, or 0 for a
session that is not sent over UDP, whose port is 0.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import Final

from ipcbus.wire.transport_names import OVER_UDP, TRANSPORT_LBTIPC, TRANSPORT_LBTSMX

VERSION: Final = 1

DOMAIN_MAX: Final = 63
"""Longest name of a domain in bytes of UTF-8."""

_HEAD = struct.Struct("!BBBBIIQQH")
_ADDRESS_BYTES: Final = {0: 0, 4: 4, 6: 16}
_TRANSPORTS: Final = {TRANSPORT_LBTIPC, TRANSPORT_LBTSMX, *OVER_UDP}


@dataclass(frozen=True, slots=True)
class ReturnAddress:
    """The asking context, its session, and its request.

    Attributes:
        domain: the domain of the asking context.
        context_id: its id.
        transport: the kind of the session that carried the request.
        session_id: the id of this session.
        local: the number of this session in the asking context.
        request: the number of the request.
        host: the address of the session over UDP; empty without one.
        port: its port; 0 without one.
    """

    domain: str
    context_id: int
    transport: int
    session_id: int
    local: int
    request: int
    host: str = ""
    port: int = 0


def pack(address: ReturnAddress) -> bytes:
    """Returns a return address as bytes."""
    host = ipaddress.ip_address(address.host) if address.host else None
    domain = address.domain.encode()
    numbers = address.session_id, address.local, address.context_id, address.request, address.port
    family = host.version if host is not None else 0
    head = _HEAD.pack(VERSION, address.transport, family, len(domain), *numbers)
    return head + (host.packed if host is not None else b"") + domain


def unpack(data: bytes) -> ReturnAddress | None:
    """Returns the values of a return address; None when the bytes are invalid or have another version."""
    if len(data) < _HEAD.size:
        return None
    version, transport, family, length, session_id, local, context_id, request, port = _HEAD.unpack_from(data)
    if version != VERSION or transport not in _TRANSPORTS or family not in _ADDRESS_BYTES:
        return None
    if len(data) != _HEAD.size + _ADDRESS_BYTES[family] + length or not 0 < length <= DOMAIN_MAX:
        return None
    if not context_id or not session_id or bool(family) != bool(port) or (transport in OVER_UDP and not family):
        return None
    end = _HEAD.size + _ADDRESS_BYTES[family]
    host = ipaddress.ip_address(data[_HEAD.size : end]) if family else None
    if host is not None and (host.is_unspecified or host.is_multicast):
        return None
    try:
        domain = data[end:].decode()
    except UnicodeDecodeError:
        return None
    if "/" in domain or "\0" in domain:
        return None
    return ReturnAddress(domain, context_id, transport, session_id, local, request, str(host) if host else "", port)
