"""Checks what a user wrote against the table of options; an error says which name was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ipcbus.config.foreign import WITHOUT_EFFECT
from ipcbus.config.option_values import Refused
from ipcbus.config.options import SCOPES, TABLE
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from ipcbus.config.option_values import OptionValues, Value


def known_scope(scope: str, where: str = "") -> type[OptionValues]:
    """Returns the options of a scope.

    Args:
        scope: its name.
        where: where the name was written, for error texts; begins with a space.

    Raises:
        ConfigError: there is no such scope.
    """
    if scope in SCOPES:
        return SCOPES[scope]
    if home := _home(scope):
        raise ConfigError(f"option {scope}{where} stands outside of its scope: move it into section {home}")
    raise ConfigError(f"there is no scope {scope!r}{where}; {nearest(scope, SCOPES, SCOPES)}")


def section_of(scope: str, section: object, where: str = "") -> Mapping[str, object]:
    """Returns the values of a config for one scope, before they are checked.

    Raises:
        ConfigError: there is no such scope, or the section is not a mapping.
    """
    known_scope(scope, where)
    if not isinstance(section, Mapping):
        raise ConfigError(
            f"section {scope}{where} is {section!r}: it must be a mapping of option names to their values"
        )
    return section


def checked(scope: str, given: Mapping[str, object], where: str = "") -> Mapping[str, Value]:
    """Returns the values as the options store them.

    Raises:
        ConfigError: the scope or an option does not exist, or a value is invalid.
    """
    rows = known_scope(scope, where).rows
    values: dict[str, Value] = {}
    for name, value in given.items():
        if name not in rows:
            raise ConfigError(unknown_option(scope, name, value, where))
        if value is None and rows[name].none_is_default:
            continue
        try:
            values[name] = rows[name].check(value)
        except Refused as refusal:
            raise ConfigError(f"option {name} (scope {scope}) = {value!r}{where}: {refusal}") from None
    return MappingProxyType(values)


def unknown_option(scope: str, name: object, value: object, where: str = "") -> str:
    """Returns why an option cannot be set here: it belongs to another scope, has no effect, or does not exist."""
    if name in WITHOUT_EFFECT.get(scope, ()):
        return (
            f"option {name} (scope {scope}) = {value!r}{where} is an option of Ultra Messaging that has no effect in "
            "ipcbus: leave it out (only flat files of Ultra Messaging may contain it)"
        )
    if home := _home(name):
        return (
            f"option {name} = {value!r}{where} was given in scope {scope}, but belongs to scope {home}: set "
            f"it there, for example Context(config={{{home!r}: {{{name!r}: ...}}}})"
        )
    return (
        f"there is no option {name!r} (given in scope {scope} = {value!r}{where}); "
        f"{nearest(name, [row.name for row in TABLE], SCOPES[scope].rows)}"
    )


def nearest(name: object, names: Iterable[str], otherwise: Iterable[str]) -> str:
    """Returns a hint at the name that was probably meant, or lists all names when none of them is close."""
    for close in difflib.get_close_matches(str(name), names, n=1):
        home = _home(close)
        return f"did you mean {close}{f' (scope {home})' if home else ''}?"
    return "known are: " + ", ".join(sorted(otherwise))


def _home(name: object) -> str:
    """Returns the scope of an option; empty when there is no such option."""
    return next((row.scope for row in TABLE if row.name == name), "")
