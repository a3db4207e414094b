"""From what the user wrote to checked option values.

Later wins: the default of the table, the config (a mapping or a TOML file), the keyword arguments of a call.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, overload

from ipcbus.config.options import (
    SCOPES,
    TABLE,
    ContextOptions,
    EventQueueOptions,
    ReceiverOptions,
    SourceOptions,
    WildcardReceiverOptions,
)
from ipcbus.config.relations import RELATIONS, Relation
from ipcbus.config.values import Refused
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from typing import TypeAlias

    from ipcbus.config.values import OptionValues, Value


class Config:
    """The options that a user set for every scope; immutable, checked as a whole when it is made."""

    def __init__(self, sections: Mapping[str, object], origin: str = "") -> None:
        """Checks the sections and how their values relate.

        Args:
            sections: option values by scope and name.
            origin: where they come from, for error texts; empty for values given in the program.

        Raises:
            ConfigError: a scope, an option or a value does not fit the table.
        """
        where = f" (in {origin})" if origin else ""
        self._sections = {
            scope: _checked(scope, _section(scope, section, where), where) for scope, section in sections.items()
        }
        self._check_relations(RELATIONS, self._sections, where)

    @classmethod
    def load(cls, config: ConfigLike) -> Config:
        """Makes a config of what `Context` accepts.

        Args:
            config: nothing (all defaults), a mapping `{scope: {option: value}}`, or the path of a TOML file
                of that shape.

        Raises:
            ConfigError: the file cannot be read, or a value does not fit the table.
        """
        if config is None:
            return cls({})
        if isinstance(config, Config):
            return config
        if isinstance(config, Mapping):
            return cls(config)
        try:
            path = Path(config)
        except TypeError:
            raise ConfigError(
                f"config has type {type(config).__name__}: give a mapping {{scope: {{option: value}}}} or "
                "the path of a TOML file"
            ) from None
        return cls(_read_toml(path), str(path))

    @overload
    def values(self, scope: Literal["context"], **overrides: object) -> ContextOptions: ...
    @overload
    def values(self, scope: Literal["source"], **overrides: object) -> SourceOptions: ...
    @overload
    def values(self, scope: Literal["receiver"], **overrides: object) -> ReceiverOptions: ...
    @overload
    def values(self, scope: Literal["event_queue"], **overrides: object) -> EventQueueOptions: ...
    @overload
    def values(self, scope: Literal["wildcard_receiver"], **overrides: object) -> WildcardReceiverOptions: ...
    @overload
    def values(self, scope: str, **overrides: object) -> OptionValues: ...
    def values(self, scope: str, **overrides: object) -> OptionValues:
        """Every option of a scope, with the keyword arguments of one call on top of the config.

        Raises:
            ConfigError: an override does not fit the table, or contradicts another option.
        """
        known = _known_scope(scope, "")
        merged = {**self._sections.get(scope, {}), **_checked(scope, overrides, "")}
        if overrides:
            touched = [r for r in RELATIONS if scope in r.scopes]
            self._check_relations(touched, {**self._sections, scope: merged}, "")
        return known(merged)

    def __repr__(self) -> str:
        """Names what was set."""
        sections = {scope: dict(section) for scope, section in self._sections.items()}
        return f"Config({sections})"

    @staticmethod
    def _check_relations(
        relations: Iterable[Relation], sections: Mapping[str, Mapping[str, Value]], where: str
    ) -> None:
        """Refuses values that are right alone and wrong together."""
        for relation in relations:
            if complaint := relation.complaint(sections, where):
                raise ConfigError(complaint)


ConfigLike: TypeAlias = Config | Mapping[str, Mapping[str, object]] | str | os.PathLike[str] | None
"""What `Context(config=...)` takes."""


def _read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, or a ConfigError that says what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"config file {path} cannot be read ({error.strerror}): check the path and its permissions"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"config file {path} is not TOML ({error}): it holds sections such as [source] with lines 'option = value'"
        ) from error


def _known_scope(scope: str, where: str) -> type[OptionValues]:
    """The options of a scope, or a ConfigError that says what was probably meant."""
    if scope in SCOPES:
        return SCOPES[scope]
    if home := _home(scope):
        raise ConfigError(f"option {scope}{where} stands outside of its scope: move it into section {home}")
    raise ConfigError(f"there is no scope {scope!r}{where}; {_nearest(scope, SCOPES, SCOPES)}")


def _home(name: str) -> str:
    """The scope of an option; empty when there is no such option."""
    return next((row.scope for row in TABLE if row.name == name), "")


def _section(scope: str, section: object, where: str) -> Mapping[str, object]:
    """The options that a config sets for one scope."""
    _known_scope(scope, where)
    if not isinstance(section, Mapping):
        raise ConfigError(
            f"section {scope}{where} is {section!r}: it must be a mapping of option names to their values"
        )
    return section


def _checked(scope: str, given: Mapping[str, object], where: str) -> Mapping[str, Value]:
    """The values as the options store them."""
    rows = _known_scope(scope, where).rows
    checked: dict[str, Value] = {}
    for name, value in given.items():
        if name not in rows:
            raise ConfigError(_unknown_option(scope, name, value, where))
        try:
            checked[name] = rows[name].check(value)
        except Refused as refusal:
            raise ConfigError(f"option {name} (scope {scope}) = {value!r}{where}: {refusal}") from None
    return MappingProxyType(checked)


def _unknown_option(scope: str, name: str, value: object, where: str) -> str:
    """Why an option cannot be set here: it belongs elsewhere, or does not exist at all."""
    if home := _home(name):
        return (
            f"option {name} = {value!r}{where} was given in scope {scope}, but belongs to scope {home}: set "
            f"it there, for example Context(config={{{home!r}: {{{name!r}: ...}}}})"
        )
    return (
        f"there is no option {name!r} (given in scope {scope} = {value!r}{where}); "
        f"{_nearest(name, [row.name for row in TABLE], SCOPES[scope].rows)}"
    )


def _nearest(name: object, names: Iterable[str], otherwise: Iterable[str]) -> str:
    """Points at the name that was probably meant; when none is close, at all that would do."""
    for close in difflib.get_close_matches(str(name), names, n=1):
        home = _home(close)
        return f"did you mean {close}{f' (scope {home})' if home else ''}?"
    return "known are: " + ", ".join(sorted(otherwise))
