"""Chooses the transport and the sizes of a session from the longest message of a source (option message_max)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipcbus.config.options import SourceOptions
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipcbus.config.option_values import Value

HEADERS: Final = 128
"""More bytes than the headers of a datagram with one message take in a ring, with those of the record around it."""
_RECORD_HEADERS: Final = 64
"""More bytes than those of the record alone."""
WINDOW_MIN: Final = SourceOptions.transport_lbtsmx_transmission_window_size.default

_LONGEST: Final = SourceOptions.message_max.name
_TRANSPORT: Final = SourceOptions.transport.name
_DATAGRAM: Final = SourceOptions.transport_lbtsmx_datagram_max_size.name
_WINDOW: Final = SourceOptions.transport_lbtsmx_transmission_window_size.name


def with_message_max(section: Mapping[str, Value], where: str = "") -> Mapping[str, Value]:
    """Returns the values of a source with those that its message_max asks for.

    The ring is as large as the next power of two, and the datagram takes its share of it, so that sources with messages
    of about the same length have the same options and share a session.

    Args:
        section: checked values of scope source that were given; others have their defaults.
        where: follows the values in an error text, for example " (in bus.toml)".

    Raises:
        ConfigError: another value contradicts message_max.
    """
    longest = int(section.get(_LONGEST, 0))
    if not longest:
        return section
    if section.get(_TRANSPORT, "lbtsmx") != "lbtsmx":
        raise ConfigError(
            f"options {_LONGEST} = {longest} and {_TRANSPORT} = {section[_TRANSPORT]!r} (scope source) were given "
            f"together{where}: {_LONGEST} chooses LBT-SMX, where a long message lies in one piece. Leave {_TRANSPORT} "
            f"out, or leave {_LONGEST} out: {section[_TRANSPORT]} sends long messages in fragments"
        )
    in_flight = int(section.get(SourceOptions.messages_in_flight.name, SourceOptions.messages_in_flight.default))
    need = longest + HEADERS
    datagram = _given(section, _DATAGRAM, need, longest, where)
    window = _given(section, _WINDOW, in_flight * max(need, datagram), longest, where)
    window = window or max(WINDOW_MIN, 1 << (in_flight * max(need, datagram) - 1).bit_length())
    most = SourceOptions.transport_lbtsmx_datagram_max_size.maximum or need
    datagram = datagram or min((window // in_flight - _RECORD_HEADERS) & ~7, most)
    return {**section, _TRANSPORT: "lbtsmx", _DATAGRAM: datagram, _WINDOW: window}


def _given(section: Mapping[str, Value], name: str, need: int, longest: int, where: str) -> int:
    """Returns the value of a size that was given, 0 if it was not.

    Raises:
        ConfigError: it is too small.
    """
    size = int(section.get(name, 0))
    if 0 < size < need:
        raise ConfigError(
            f"option {name} (scope source) = {size}{where} is too small for {_LONGEST} = {longest}: leave it out, so "
            f"that it is chosen, or set it to at least {need}"
        )
    return size
