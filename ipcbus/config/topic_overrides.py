"""Options for single topics: the tables under `topics` of a config."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ipcbus.config.option_checks import checked, section_of
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from ipcbus.config.option_values import Value

KEY: Final = "topics"
"""The key beside the scopes of a config."""

_SCOPES: Final = ("source", "receiver")
_SHAPE: Final = (
    "give a list of tables, each with a name (the exact topic) or a pattern (a regular expression for the whole "
    "topic), and sections source and receiver"
)


@dataclasses.dataclass(frozen=True, slots=True)
class TopicOverride:
    """Values of options for one topic, or for all topics that match a pattern."""

    label: str
    """The name of the entry in texts: its number in the list, and its name or pattern."""
    name: str
    """The exact topic; empty for a pattern."""
    pattern: re.Pattern[str] | None
    sections: Mapping[str, Mapping[str, Value]]

    def inside(self, where: str) -> str:
        """Returns the place of the entry for error texts; `where` is where the config comes from."""
        return _inside(self.label, where)

    def fits(self, topic: str) -> bool:
        """Returns whether the values hold for a topic."""
        return topic == self.name if self.pattern is None else self.pattern.fullmatch(topic) is not None


def read(given: object, where: str) -> tuple[TopicOverride, ...]:
    """Returns the overrides of a config, in their order.

    Args:
        given: the value of `topics`.
        where: where the config comes from, for error texts; begins with a space, or is empty.

    Raises:
        ConfigError: `given` does not have the right shape, an option does not exist, or a value is invalid.
    """
    if not isinstance(given, list | tuple):
        raise ConfigError(f"{KEY}{where} is {given!r}: {_SHAPE}")
    return tuple(_override(number, entry, where) for number, entry in enumerate(given, 1))


def _override(number: int, entry: object, where: str) -> TopicOverride:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{KEY} entry {number}{where} is {entry!r}: {_SHAPE}")
    identity = [key for key in ("name", "pattern") if key in entry]
    if len(identity) != 1:
        found = "both a name and a pattern" if identity else "neither a name nor a pattern"
        raise ConfigError(f"{KEY} entry {number}{where} has {found}: give exactly one of them")
    (key,) = identity
    text = entry[key]
    if not isinstance(text, str) or not text:
        raise ConfigError(f"{KEY} entry {number}{where} has {key} = {text!r}, but it must be a text, not empty")
    label = f"{KEY} entry {number}, {key} {text!r}"
    inside = _inside(label, where)
    for other in entry:
        if other not in (key, *_SCOPES):
            raise ConfigError(f"{other!r}{inside} is not a section for topics: {_SHAPE}")
    sections = {
        scope: checked(scope, section_of(scope, entry[scope], inside), inside) for scope in _SCOPES if scope in entry
    }
    if key == "name":
        return TopicOverride(label, text, None, sections)
    return TopicOverride(label, "", _compiled(text, inside), sections)


def _inside(label: str, where: str) -> str:
    return f"{where.rstrip(')')}, {label})" if where else f" (in {label})"


def _compiled(pattern: str, where: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(
            f"pattern {pattern!r}{where} is not a regular expression ({error}); give an exact topic as name"
        ) from None
