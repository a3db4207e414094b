"""Options whose values are network addresses: their check and their normal form.

Addresses are numeric. A host name would need a name server, whose answer may change while a bus runs.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_DAEMONS_MAX: Final = 5
"""Most unicast resolvers; Ultra Messaging has the same limit."""
_NAME: Final = re.compile(r"[^\s/:%]{1,15}")
_LIKE_AN_ADDRESS: Final = re.compile(r"[0-9.]+")
_AT: Final = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+)):([0-9]{1,5})")


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """The form that the text of an option must have.

    Attributes:
        words: a description that continues "it must be".
        read: returns the text in its normal form, or raises ValueError when the text is invalid.
    """

    words: str
    read: Callable[[str], str]


def daemons(text: str) -> tuple[tuple[str, int], ...]:
    """Returns host and port of each unicast resolver that `resolver_unicast_daemon` names.

    Args:
        text: `host:port`, separated by `;` or `,`; an IPv6 host is in brackets.

    Raises:
        ValueError: the text does not have this form, or names too many resolvers.
    """
    found = []
    for each in re.split("[;,]", text):
        match = _AT.fullmatch(each.strip())
        if match is None:
            raise ValueError(each)
        address, port = ipaddress.ip_address(match[1] or match[2]), int(match[3])
        if (address.version == 6) != bool(match[1]) or not 0 < port < 1 << 16 or not _is_of_a_host(address):
            raise ValueError(each)
        found.append((str(address), port))
    if len(found) > _DAEMONS_MAX:
        raise ValueError(f"more than {_DAEMONS_MAX}")
    return tuple(dict.fromkeys(found))


def joined(host: str, port: int) -> str:
    """Returns a host and a port as one text, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _read_daemons(text: str) -> str:
    return ";".join(joined(*each) for each in daemons(text)) if text else ""


def _read_group(text: str) -> str:
    address = ipaddress.ip_address(text)
    if not address.is_multicast:
        raise ValueError(text)
    return str(address)


def _read_any_group(text: str) -> str:
    address = ipaddress.ip_address(text)
    return str(address) if address.is_unspecified else _read_group(text)


def _read_interface(text: str) -> str:
    # Ultra Messaging writes names of interfaces in quotation marks.
    text = text.strip('"')
    if "/" in text:
        return str(ipaddress.ip_interface(text))
    if ":" in text or _LIKE_AN_ADDRESS.fullmatch(text):
        address = ipaddress.ip_address(text)
        if address.is_multicast:
            raise ValueError(text)
        return str(address)
    if not _NAME.fullmatch(text):
        raise ValueError(text)
    return text


def _read_interface_or_none(text: str) -> str:
    return _read_interface(text) if text else ""


def _is_of_a_host(address: Address) -> bool:
    return not (address.is_multicast or address.is_unspecified)


GROUP: Final = Form("a numeric multicast address", _read_group)
ANY_GROUP: Final = Form("a numeric multicast address, or 0.0.0.0", _read_any_group)
INTERFACE: Final = Form(
    "the numeric address of an interface, its network (10.0.0.0/8), or its name (at most 15 bytes)", _read_interface
)
INTERFACE_OR_NONE: Final = Form(f"empty, or {INTERFACE.words}", _read_interface_or_none)
DAEMONS: Final = Form(
    f"empty, or at most {_DAEMONS_MAX} of numeric-address:port ([address]:port for IPv6), divided by ;", _read_daemons
)
