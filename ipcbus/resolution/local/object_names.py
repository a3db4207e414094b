"""Names of the objects of a context in /dev/shm.

`ipcbus.<domain>.<context id>.<kind>`, at most 30 characters. All objects of a context share its prefix, so that the
objects of a dead context can be found by their names alone.
"""

from __future__ import annotations

import functools
import hashlib
import re

from ipcbus.errors import ConfigError

PREFIX = "ipcbus."
REGISTRY = "g"
BELL = "w"

DOMAIN_MAX = 63
"""Longest name of a domain in bytes of UTF-8, which fits into a registry."""

_plain = re.compile(r"[a-z0-9_-]{1,8}")
_name = re.compile(r"ipcbus\.([^.]{1,8})\.([0-9a-f]{8})\.([gwrcp][0-9a-f]{0,4})")


def check_domain(domain: object) -> None:
    """Refuses an invalid name of a domain.

    Raises:
        ConfigError: the name is not a text, is empty or too long, has a slash or a zero byte, or cannot be encoded as
            UTF-8.
    """
    try:
        size = len(domain.encode()) if isinstance(domain, str) else 0
    except UnicodeEncodeError:  # half of a surrogate pair
        size = 0
    if not isinstance(domain, str) or not 0 < size <= DOMAIN_MAX or "/" in domain or "\0" in domain:
        raise ConfigError(
            f"domain {domain!a} is not a valid name of a domain: give 1 to {DOMAIN_MAX} bytes of UTF-8 text without "
            "slash and zero bytes, for example 'default'"
        )


def domain_tag(domain: str) -> str:
    """Returns the domain as a part of names: a short and plain name itself, else a hash that is not a plain name."""
    if _plain.fullmatch(domain):
        return domain
    return "+" + hashlib.blake2s(domain.encode(), digest_size=4).hexdigest()[:7]


@functools.lru_cache(maxsize=64)
def domain_prefix(domain: str) -> str:
    """Returns the prefix of all names of a domain."""
    return f"{PREFIX}{domain_tag(domain)}."


def context_prefix(domain: str, context_id: int) -> str:
    """Returns the prefix of all names of a context."""
    return f"{domain_prefix(domain)}{context_id:08x}."


def registry(domain: str, context_id: int) -> str:
    """Returns the name of a context's registry."""
    return context_prefix(domain, context_id) + REGISTRY


def bell(domain: str, context_id: int) -> str:
    """Returns the name of a context's doorbell."""
    return context_prefix(domain, context_id) + BELL


def ring(domain: str, context_id: int, local: int) -> str:
    """Returns the name of the ring of a context's session number `local`."""
    return f"{context_prefix(domain, context_id)}r{local:x}"


def control(domain: str, context_id: int, local: int) -> str:
    """Returns the name of the control block of a context's session number `local`."""
    return f"{context_prefix(domain, context_id)}c{local:x}"


def pipe(domain: str, context_id: int, number: int) -> str:
    """Returns the name of a pipe between a session of a context and one receiver; it exists until both have it."""
    return f"{context_prefix(domain, context_id)}p{number:x}"


def parse(name: str) -> tuple[str, int, str] | None:
    """Returns domain tag, context id and kind with number of a name; None if it is not a name of ipcbus."""
    match = _name.fullmatch(name)
    return (match[1], int(match[2], 16), match[3]) if match else None


def of_kind(found: list[str], kind: str) -> list[str]:
    """Returns the names of ipcbus of one kind."""
    return [name for name in found if (parsed := parse(name)) is not None and parsed[2] == kind]
