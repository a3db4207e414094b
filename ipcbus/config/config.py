"""Turns what the user wrote into checked option values.

A later place overrides an earlier one:

1. the default in the table;
2. the section of the scope in the config: a mapping or a file; without one, the file that `IPCBUS_CONFIG` names;
3. the entries under `topics` of the config that match the topic, in their order;
4. the keyword arguments of a call.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, overload

from ipcbus.config import config_files
from ipcbus.config.message_sizes import with_message_max
from ipcbus.config.option_checks import PARAMETERS, checked, known_scope, section_of
from ipcbus.config.options import SCOPES
from ipcbus.config.relations import RELATIONS, refuse_contradiction
from ipcbus.config.text_relations import TEXT_RELATIONS
from ipcbus.config.topic_overrides import KEY, TopicOverride
from ipcbus.config.topic_overrides import read as read_topics
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from typing import TypeAlias

    from ipcbus.config.flat import Ignored
    from ipcbus.config.keywords import ConfigMapping
    from ipcbus.config.option_values import OptionValues, Value
    from ipcbus.config.options import (
        ContextOptions,
        EventQueueOptions,
        ReceiverOptions,
        SourceOptions,
        WildcardReceiverOptions,
    )
    from ipcbus.config.relations import Relation
    from ipcbus.config.text_relations import TextRelation

    Sections: TypeAlias = Mapping[str, Mapping[str, Value]]

log = logging.getLogger("ipcbus")

RULES: Final[tuple[Relation | TextRelation, ...]] = (*RELATIONS, *TEXT_RELATIONS)
"""All rules between two options."""

ENVIRONMENT: Final = "IPCBUS_CONFIG"
"""Names the config file of contexts that are given no config."""


class Config:
    """The options that a user set, by scope and for single topics; immutable, checked when it is made."""

    def __init__(self, sections: Mapping[str, object], origin: str = "", ignored: tuple[Ignored, ...] = ()) -> None:
        """Checks each value, and the rules between them.

        Args:
            sections: option values by scope and name; `topics` is a list of values for single topics.
            origin: where the values come from, for error texts; empty for values given in the program.
            ignored: the options without an effect that the file contains.

        Raises:
            ConfigError: a scope or an option does not exist, or a value is invalid.
        """
        where = f" (in {origin})" if origin else ""
        self._origin = origin
        self._ignored = ignored
        self._sections: Sections = MappingProxyType(
            {
                scope: checked(scope, section_of(scope, section, where), where)
                for scope, section in sections.items()
                if scope != KEY
            }
        )
        self._topics = read_topics(sections.get(KEY, ()), where)
        _check_rules(RULES, self._sections, where)
        with_message_max(self._sections.get("source", {}), where)
        for each in self._topics:
            # All entries that match an exact name are known; a pattern is checked alone.
            fitting = self._fitting(each.name) if each.name else (each,)
            merged = _merged(self._sections, fitting)
            _check_rules(RULES, merged, each.inside(where))
            if each.name:
                with_message_max(merged.get("source", {}), each.inside(where))

    @classmethod
    def load(cls, config: ConfigLike) -> Config:
        """Makes a config of what `Context` accepts, and logs a warning for options without an effect.

        Args:
            config: a mapping `{scope: {option: value}}`, or the path of a TOML file of that shape or of a flat
                file of Ultra Messaging; None means the file that the environment variable `IPCBUS_CONFIG`
                names, or all defaults. The variable is ignored when a config is given.

        Raises:
            ConfigError: the file cannot be read, or a value is invalid.
        """
        if isinstance(config, Config):
            return config
        if isinstance(config, Mapping):
            return cls(config)
        if config is None:
            named = os.environ.get(ENVIRONMENT, "")
            found = cls.from_file(named, f"{named}, named by {ENVIRONMENT}") if named else cls({})
        else:
            found = cls.from_file(config)
        if found.ignored:
            log.warning(
                "config file %s: options of Ultra Messaging that have no effect in ipcbus: %s",
                found.origin,
                ", ".join(map(str, found.ignored)),
            )
        return found

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], origin: str = "") -> Config:
        """Reads a config file: TOML, or Ultra Messaging's flat form.

        Args:
            path: the file; TOML when its name ends with `.toml` or its content looks like TOML.
            origin: the name of the file in error texts (default: the path).

        Raises:
            ConfigError: the file cannot be read, or a value is invalid.
        """
        try:
            file = Path(path)
        except TypeError:
            raise ConfigError(
                f"config has type {type(path).__name__}: give a mapping {{scope: {{option: value}}}} or "
                "the path of a config file"
            ) from None
        origin = origin or str(file)
        content = config_files.read(file, origin)
        return cls(content.sections, origin, content.ignored)

    @property
    def origin(self) -> str:
        """The file that the config was read from; empty for values given in the program."""
        return self._origin

    @property
    def sections(self) -> Mapping[str, Mapping[str, Value]]:
        """The values that were set for whole scopes."""
        return self._sections

    @property
    def topics(self) -> tuple[TopicOverride, ...]:
        """The values that were set for single topics."""
        return self._topics

    @property
    def ignored(self) -> tuple[Ignored, ...]:
        """The options of Ultra Messaging in the file that have no effect in ipcbus."""
        return self._ignored

    @overload
    def values(self, scope: Literal["context"], /, topic: str = "", **overrides: object) -> ContextOptions: ...
    @overload
    def values(self, scope: Literal["source"], /, topic: str = "", **overrides: object) -> SourceOptions: ...
    @overload
    def values(self, scope: Literal["receiver"], /, topic: str = "", **overrides: object) -> ReceiverOptions: ...
    @overload
    def values(self, scope: Literal["event_queue"], /, topic: str = "", **overrides: object) -> EventQueueOptions: ...
    @overload
    def values(
        self, scope: Literal["wildcard_receiver"], /, topic: str = "", **overrides: object
    ) -> WildcardReceiverOptions: ...
    @overload
    def values(self, scope: str, /, topic: str = "", **overrides: object) -> OptionValues: ...
    def values(self, scope: str, /, topic: str = "", **overrides: object) -> OptionValues:
        """Returns every option of a scope, for one topic; keyword arguments override the config.

        Args:
            scope: name of the scope.
            topic: the topic of the source or receiver; empty for other scopes.
            **overrides: values by name of the option.

        Raises:
            ConfigError: an override is invalid, or contradicts another option.
        """
        known = known_scope(scope)
        given = checked(scope, overrides, parameters=PARAMETERS[scope])
        refuse_contradiction(given)
        sections = _merged(self._sections, self._fitting(topic))
        merged: Mapping[str, Value] = {**sections.get(scope, {}), **given}
        if scope == "source":
            merged = with_message_max(merged)
        if topic or given:
            touched = [rule for rule in RULES if scope in rule.scopes]
            _check_rules(touched, {**sections, scope: merged})
        return known(merged)

    def wildcard_values(self, given: Mapping[str, object]) -> tuple[ReceiverOptions, WildcardReceiverOptions]:
        """Returns the options of the receivers that a wildcard receiver makes, and those of its own.

        Args:
            given: options of both scopes by name; they override the config.

        Raises:
            ConfigError: an option is unknown or invalid, or contradicts another one.
        """
        rows = SCOPES["wildcard_receiver"].rows
        own = {name: value for name, value in given.items() if name in rows}
        others = {name: value for name, value in given.items() if name not in rows}
        checked("receiver", others, parameters=PARAMETERS["wildcard_receiver"])
        return self.values("receiver", "", **others), self.values("wildcard_receiver", "", **own)

    def origins(self, scope: str, topic: str = "") -> dict[str, str]:
        """Returns the origin of each option of a scope that was set: the file, `config`, or an entry for topics."""
        found = dict.fromkeys(self._sections.get(scope, {}), self._origin or "config")
        for each in self._fitting(topic):
            found.update(dict.fromkeys(each.sections.get(scope, {}), each.label))
        return found

    def __repr__(self) -> str:
        """Returns a text with the values that were set."""
        sections = {scope: dict(section) for scope, section in self._sections.items()}
        labels = "".join(f", {each.label}" for each in self._topics)
        return f"Config({sections}{labels})"

    def _fitting(self, topic: str) -> tuple[TopicOverride, ...]:
        return tuple(each for each in self._topics if each.fits(topic)) if topic else ()


ConfigLike: TypeAlias = "Config | ConfigMapping | str | os.PathLike[str] | None"
"""What `Context(config=...)` accepts."""


def _merged(sections: Sections, overrides: Iterable[TopicOverride]) -> Sections:
    """Returns the sections, overridden by those of topics."""
    merged = dict(sections)
    for each in overrides:
        for scope, section in each.sections.items():
            merged[scope] = {**merged.get(scope, {}), **section}
    return merged


def _check_rules(rules: Iterable[Relation | TextRelation], sections: Sections, where: str = "") -> None:
    """Refuses values that are valid alone and invalid together."""
    for rule in rules:
        if complaint := rule.complaint(sections, where):
            raise ConfigError(complaint)
