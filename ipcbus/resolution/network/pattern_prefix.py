"""What every topic begins with that a pattern matches: it is asked for instead of the pattern."""

from __future__ import annotations

from typing import Final

from ipcbus.wire.wire_layout import TOPIC_NAME_MAX

_OPENING: Final = "^"
_SPECIAL: Final = frozenset(".^$*+?{}[]\\|()")
_MAY_BE_NONE: Final = "*?{"


def literal_prefix(pattern: str) -> str:
    """Text with which a topic has to begin to match a regular expression in full; empty when none is known.

    It is rather too short than wrong: what it does not understand ends it.
    """
    if _has_alternatives(pattern):
        return ""
    found: list[str] = []
    at = len(_OPENING) if pattern.startswith(_OPENING) else 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\" and at + 1 < len(pattern) and pattern[at + 1].isascii() and not pattern[at + 1].isalnum():
            at += 1
            character = pattern[at]
        elif character in _SPECIAL:
            break
        at += 1
        if pattern[at : at + 1] and pattern[at] in _MAY_BE_NONE:
            break
        found.append(character)
    return _fitting("".join(found))


def _has_alternatives(pattern: str) -> bool:
    """Returns whether a bar may stand outside of all groups; one in a class of characters is taken for one."""
    depth, escaped = 0, False
    for character in pattern:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "|" and depth <= 0:
            return True
        # A bracket in a class of characters is no group: who has a class has no depth that could be relied on.
        elif character == "[":
            return "|" in pattern
        else:
            depth += (character == "(") - (character == ")")
    return False


def _fitting(text: str) -> str:
    """As much of a text as a packet takes; nothing of one that has no UTF-8, which no topic can begin with."""
    try:
        return text.encode()[:TOPIC_NAME_MAX].decode(errors="ignore").partition("\0")[0]
    except UnicodeEncodeError:
        return ""
