"""Checks what a user wrote against the table of options; an error says which name was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ipcbus.config.foreign import WITHOUT_EFFECT
from ipcbus.config.option_values import Refused
from ipcbus.config.options import SCOPES, TABLE
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from ipcbus.config.option_values import OptionValues, Value

_RECEIVER: Final = ("on_message", "on_data", "on_view", "events", "event_queue", "source_notification")
PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "context": ("config", "name", "domain", "operational_mode"),
        "source": ("on_event",),
        "receiver": _RECEIVER,
        "wildcard_receiver": (*_RECEIVER, "on_create", "on_delete"),
        "event_queue": ("maximum", "policy", "config"),
    }
)
"""The keywords, besides options, of the calls that make the objects of a scope."""

_NEAREST = 5
"""Names of a hint at most."""
_WORD = 3
"""Letters of a part of a name that tells something."""


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


def checked(
    scope: str, given: Mapping[str, object], where: str = "", *, parameters: Iterable[str] = ()
) -> Mapping[str, Value]:
    """Returns the values as the options store them.

    Args:
        scope: the scope of the values.
        given: the values by names of options.
        where: where the values were written, for error texts; begins with a space.
        parameters: the other keywords of a call that got the values as keywords; one of them may have been meant.

    Raises:
        ConfigError: the scope or an option does not exist, or a value is invalid.
    """
    rows = known_scope(scope, where).rows
    values: dict[str, Value] = {}
    for name, value in given.items():
        if name not in rows:
            raise ConfigError(unknown_option(scope, name, value, where, parameters))
        if value is None and rows[name].none_is_default:
            continue
        try:
            values[name] = rows[name].check(value)
        except Refused as refusal:
            raise ConfigError(f"option {name} (scope {scope}) = {value!r}{where}: {refusal}") from None
    return MappingProxyType(values)


def refuse_keywords(given: Mapping[str, object]) -> None:
    """Refuses keywords that `Context` does not have.

    Raises:
        ConfigError: there is one; the text says where the option belongs, or which keyword was probably meant.
    """
    for name, value in given.items():
        raise ConfigError(f"Context takes no {name} = {value!r}{_place(name, value)}")


def _place(name: str, value: object) -> str:
    home = _home(name)
    if not home:
        names = [*PARAMETERS["context"], *(row.name for row in TABLE)]
        hint = nearest(name, names, PARAMETERS["context"])
        return f"; {hint}" if hint.endswith("?") else f"; {hint}; 'ipcbus config show' lists the options of a config"
    known = f", which is an option of scope {home}; "
    config = f"Context(config={{{home!r}: {{{name!r}: {value!r}}}}})"
    if home == "context":
        return f"{known}write {config}"
    if home == "event_queue":
        return f"{known}give it to ipcbus.EventQueue({name}={value!r})"
    call = "wildcard_receiver(pattern" if home == "wildcard_receiver" else f"{home}(topic"
    return f"{known}give it to ctx.{call}, {name}={value!r}), or set it for all, as in {config}"


def unknown_option(scope: str, name: object, value: object, where: str = "", parameters: Iterable[str] = ()) -> str:
    """Returns why an option cannot be set here: it belongs to another scope, has no effect, or does not exist."""
    if home := _home(name):
        return (
            f"option {name} = {value!r}{where} was given in scope {scope}, but belongs to scope {home}: set "
            f"it there, for example Context(config={{{home!r}: {{{name!r}: ...}}}})"
        )
    if name in WITHOUT_EFFECT.get(scope, ()):
        return (
            f"option {name} (scope {scope}) = {value!r}{where} is an option of Ultra Messaging that has no effect in "
            "ipcbus: leave it out (only flat files of Ultra Messaging may contain it)"
        )
    return (
        f"there is no option {name!r} (given in scope {scope} = {value!r}{where}); "
        f"{nearest_option(scope, name, parameters)}"
    )


def nearest_option(scope: str, name: object, others: Iterable[str] = ()) -> str:
    """Returns a hint at the option that was probably meant, and at the list of all where there are several.

    Args:
        scope: the scope in which the name was given.
        name: the name, which no option has.
        others: names besides those of options that may have been meant.
    """
    names = [row.name for row in TABLE]
    if close := _close(name, [*names, *others]):
        return close
    words = [word for word in str(name).casefold().split("_") if len(word) >= _WORD]
    ranks = {row: (sum(word in row for word in words), row in SCOPES[scope].rows) for row in names}
    best = max(count for count, _ in ranks.values())
    similar = [row for row in names if ranks[row][0] == best]
    similar.sort(key=lambda row: (not ranks[row][1], row))
    shown = ", ".join(row if ranks[row][1] else f"{row} (scope {_home(row)})" for row in similar[:_NEAREST])
    hint = f"the nearest are {shown}; " if best else ""
    return f"{hint}'ipcbus config show --scope {scope}' lists all of them"


def nearest(name: object, names: Iterable[str], otherwise: Iterable[str]) -> str:
    """Returns a hint at the name that was probably meant, or lists a few names when none of them is close."""
    return _close(name, names) or "known are: " + ", ".join(sorted(otherwise))


def _close(name: object, names: Iterable[str]) -> str:
    for close in difflib.get_close_matches(str(name), names, n=1):
        home = "" if close in PARAMETERS["context"] else _home(close)
        return f"did you mean {close}{f' (scope {home})' if home else ''}?"
    return ""


def _home(name: object) -> str:
    """Returns the scope of an option; empty when there is no such option."""
    return next((row.scope for row in TABLE if row.name == name), "")
