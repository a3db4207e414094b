"""Ultra Messaging's flat files: a line is a scope, an option and its value; `#` begins a comment.

Scopes, options and choices may be written in capitals, as in Ultra Messaging. A later line for an option overrides an
earlier one, except for options where each line adds a value.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from ipcbus.config.foreign import WITHOUT_EFFECT
from ipcbus.config.option_checks import nearest, nearest_option, unknown_option
from ipcbus.config.option_values import Refused
from ipcbus.config.options import SCOPES, TABLE
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from ipcbus.config.option_values import Value

LINE_MAX = 8192
"""Longest line in characters."""

_COMMENT = re.compile(r"(^|\s)#.*")


@dataclasses.dataclass(frozen=True, slots=True)
class Ignored:
    """An option of Ultra Messaging that has no effect in ipcbus."""

    scope: str
    name: str
    value: str
    line: int

    def __str__(self) -> str:
        """Returns the option with its scope and line."""
        return f"{self.scope} {self.name} (line {self.line})"


def meaningful(line: str) -> str:
    """Returns a line without its comment and the blanks around it."""
    return _COMMENT.sub("", line).strip()


def read(text: str, origin: str) -> tuple[dict[str, dict[str, Value]], tuple[Ignored, ...]]:
    """Reads a flat file.

    Args:
        text: its content.
        origin: its name, for error texts.

    Returns:
        The values by scope and name, checked one by one, and the options without an effect.

    Raises:
        ConfigError: a line is invalid; the text names the file and the line.
    """
    sections: dict[str, dict[str, Value]] = {}
    ignored = []
    for number, line in enumerate(text.splitlines(), 1):
        words = meaningful(line).split(None, 2)
        if not words:
            continue
        where = f" (in {origin}, line {number})"
        if len(line) > LINE_MAX:
            raise ConfigError(
                f"{line[:40]!r}...{where} is longer than {LINE_MAX} characters: check that it is a flat config file, "
                "with a scope, an option and its value in each line"
            )
        if len(words) < 3:
            raise ConfigError(
                f"{' '.join(words)!r}{where} is not a whole line: it must be a scope, an option and its value, "
                "for example 'source transport lbtipc'"
            )
        scope, name, value = words[0].casefold(), words[1].casefold(), words[2]
        if scope not in SCOPES and scope not in WITHOUT_EFFECT:
            raise ConfigError(f"there is no scope {words[0]!r}{where}; {nearest(scope, SCOPES, SCOPES)}")
        if scope in SCOPES and name in SCOPES[scope].rows:
            section = sections.setdefault(scope, {})
            if SCOPES[scope].rows[name].several and name in section:
                value = f"{section[name]};{value}"
            section[name] = _value(scope, name, value, where)
        elif name in WITHOUT_EFFECT.get(scope, ()):
            ignored.append(Ignored(scope, name, value, number))
        else:
            raise ConfigError(_unknown(scope, name, value, where))
    return sections, tuple(ignored)


def _value(scope: str, name: str, text: str, where: str) -> Value:
    try:
        return SCOPES[scope].rows[name].parse(text)
    except Refused as refusal:
        raise ConfigError(f"option {name} (scope {scope}) = {text!r}{where}: {refusal}") from None


def _unknown(scope: str, name: str, value: str, where: str) -> str:
    """Returns the error text; the name that was meant may be an option without an effect, too."""
    homes = [home for home, names in WITHOUT_EFFECT.items() if name in names]
    if homes:
        return (
            f"option {name} = {value!r}{where} was given in scope {scope}, but belongs to scope {' or '.join(homes)}: "
            "set it there, or leave it out, because it has no effect in ipcbus"
        )
    ours = [row.name for row in TABLE]
    if scope in SCOPES and name in ours:
        return unknown_option(scope, name, value, where)
    foreign = sorted(WITHOUT_EFFECT.get(scope, ()))
    hint = nearest_option(scope, name, foreign) if scope in SCOPES else nearest(name, [*ours, *foreign], foreign)
    return f"there is no option {name!r} (given in scope {scope} = {value!r}{where}); {hint}"
