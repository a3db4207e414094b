"""Names of everything a context puts into /dev/shm.

`ipcbus.<domain>.<context id>.<kind>`, at most 30 characters. All objects of a context share its prefix, so what a dead
context left behind can be found without asking anybody.
"""

from __future__ import annotations

import hashlib
import re

from ipcbus.errors import ConfigError

PREFIX = "ipcbus."
REGISTRY = "g"
BELL = "w"

DOMAIN_MAX = 63
"""Longest name of a domain in bytes of UTF-8: that much of it has room in a registry."""

_plain = re.compile(r"[a-z0-9_-]{1,8}")
_name = re.compile(r"ipcbus\.([^.]{1,8})\.([0-9a-f]{8})\.([gwrc][0-9a-f]{0,4})")


def check_domain(domain: object) -> None:
    """Refuses what is no name of a domain.

    Raises:
        ConfigError: it is no text, empty or too long, has a slash or a zero byte, or no form in UTF-8.
    """
    try:
        size = len(domain.encode()) if isinstance(domain, str) else 0
    except UnicodeEncodeError:  # half of a surrogate pair
        size = 0
    if not isinstance(domain, str) or not 0 < size <= DOMAIN_MAX or "/" in domain or "\0" in domain:
        raise ConfigError(
            f"domain {domain!a} is no name of a domain: give 1 to {DOMAIN_MAX} bytes of UTF-8 text without slash and "
            "zero bytes, for example 'default'"
        )


def domain_tag(domain: str) -> str:
    """Returns the domain as it stands in names: itself when short and plain, else a hash that no plain one equals."""
    if _plain.fullmatch(domain):
        return domain
    return "+" + hashlib.blake2s(domain.encode(), digest_size=4).hexdigest()[:7]


def domain_prefix(domain: str) -> str:
    """What all names of a domain begin with."""
    return f"{PREFIX}{domain_tag(domain)}."


def context_prefix(domain: str, context_id: int) -> str:
    """What all names of a context begin with."""
    return f"{domain_prefix(domain)}{context_id:08x}."


def registry(domain: str, context_id: int) -> str:
    """Name of a context's registry object."""
    return context_prefix(domain, context_id) + REGISTRY


def bell(domain: str, context_id: int) -> str:
    """Name of a context's doorbell."""
    return context_prefix(domain, context_id) + BELL


def ring(domain: str, context_id: int, local: int) -> str:
    """Name of the ring of a context's session number `local`."""
    return f"{context_prefix(domain, context_id)}r{local:x}"


def control(domain: str, context_id: int, local: int) -> str:
    """Name of the control block of a context's session number `local`."""
    return f"{context_prefix(domain, context_id)}c{local:x}"


def parse(name: str) -> tuple[str, int, str] | None:
    """Domain tag, context id and kind with number of a name; None when it is none of ours."""
    match = _name.fullmatch(name)
    return (match[1], int(match[2], 16), match[3]) if match else None


def of_kind(found: list[str], kind: str) -> list[str]:
    """Those of the found names that are ours and of a kind; whatever else lies there is left out."""
    return [name for name in found if (parsed := parse(name)) is not None and parsed[2] == kind]
