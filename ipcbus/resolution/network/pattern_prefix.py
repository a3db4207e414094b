"""The prefix of all topics that match a pattern; queries contain it instead of the pattern."""

from __future__ import annotations

from typing import Final

from ipcbus.wire.wire_layout import TOPIC_NAME_MAX

_OPENING: Final = "^"
_SPECIAL: Final = frozenset(".^$*+?{}[]\\|()")
_MAY_BE_NONE: Final = "*?{"


def literal_prefix(pattern: str) -> str:
    """Returns the prefix of all topics that fully match a regular expression; empty if it is unknown.

    The prefix may be too short, but is never wrong: it ends at the first part of the pattern that is not understood.
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
    """Returns whether a bar may be outside of all groups; a bar in a class of characters counts, too."""
    depth, escaped = 0, False
    for character in pattern:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "|" and depth <= 0:
            return True
        # A bracket in a class of characters does not begin a group, so the depth is unknown for patterns with a class.
        elif character == "[":
            return "|" in pattern
        else:
            depth += (character == "(") - (character == ")")
    return False


def _fitting(text: str) -> str:
    """Returns the part of a text that fits into a packet; empty if it cannot be encoded, so that no topic matches."""
    try:
        return text.encode()[:TOPIC_NAME_MAX].decode(errors="ignore").partition("\0")[0]
    except UnicodeEncodeError:
        return ""
