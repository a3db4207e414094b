"""A row of the table of options, and the values of a scope.

A scope is a class whose attributes are its options (see the package `options`). An attribute of the class is the row
of the table; an attribute of an instance is the value, with its static type.
"""

from __future__ import annotations

import dataclasses
import difflib
import operator
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar, cast, overload

if TYPE_CHECKING:
    from typing import Self

    from ipcbus.config.addresses import Form

Value = bool | int | str
T = TypeVar("T", bound=Value)

# No option needs more digits; Python needs long to read very long numbers.
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")

ScopeName = Literal["context", "source", "receiver", "event_queue", "wildcard_receiver"]


class Refused(Exception):
    """A value is invalid for its option; the text says what is valid. `Config` adds option, scope and value."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option(Generic[T]):
    """One row of the table of options."""

    default: T
    meaning: str
    """What the option does, and how it differs from Ultra Messaging."""
    unit: str = ""
    minimum: int | None = None
    maximum: int | None = None
    """The largest value of a number, or the longest text in bytes of UTF-8."""
    choices: tuple[str, ...] = ()
    synonyms: tuple[tuple[str, str], ...] = ()
    """Other names of choices, each with its choice."""
    guesses: tuple[tuple[str, str], ...] = ()
    """Texts that are not choices, each with what its users mean, for error texts."""
    form: Form | None = None
    """The form that a text must have."""
    several: bool = False
    """Whether each line of a flat file adds a value, instead of overriding the line before."""
    power_of_two: bool = False
    """Whether the value is rounded up to the next power of two."""
    subject_to_change: bool = False
    """Whether the effect of a value may change between releases; the reference page says so."""
    special_zero: bool = False
    """Whether 0 is not a quantity, but means off or without limit."""
    none_is_default: bool = False
    """Whether Python's None stands for the default."""
    name: str = ""
    scope: str = ""

    @overload
    def __get__(self, values: None, owner: type[OptionValues]) -> Self: ...
    @overload
    def __get__(self, values: OptionValues, owner: type[OptionValues]) -> T: ...
    def __get__(self, values: OptionValues | None, owner: type[OptionValues]) -> Self | T:
        """Returns the row for the class, the value for an instance."""
        return self if values is None else cast("T", values[self.name])

    @property
    def kind(self) -> type[T]:
        """The type of the option's values: bool, int or str."""
        return type(self.default)

    @property
    def names(self) -> tuple[str, ...]:
        """The choices and their other names."""
        return (*self.choices, *dict(self.synonyms))

    def check(self, value: object) -> T:
        """Returns `value` as this option stores it.

        Raises:
            Refused: the value has the wrong type or is out of range.
        """
        if self.kind is bool:
            return cast("T", self._check_bool(value))
        if self.kind is int:
            return cast("T", self._check_int(value))
        return cast("T", self._check_text(value))

    def parse(self, text: str) -> T:
        """Returns the value that a text of a flat file means.

        Raises:
            Refused: the text has the wrong form or is out of range.
        """
        if self.kind is bool:
            if text not in ("0", "1"):
                raise Refused("it must be 0 or 1")
            return self.check(text == "1")
        if self.kind is int:
            if not _NUMBER.fullmatch(text):
                raise Refused(f"it must be {self.limits()}")
            return self.check(int(text))
        return self.check(text)

    def limits(self) -> str:
        """Returns the valid values in words."""
        if self.choices:
            return "one of " + ", ".join(self.names)
        if self.kind is bool:
            return "true or false"
        if self.form is not None:
            return self.form.words
        if self.kind is str:
            return "a text" if self.maximum is None else f"a text of at most {self.maximum} bytes"
        unit = f" {self.unit}" if self.unit else ""
        if self.minimum is not None and self.maximum is not None:
            return f"a whole number from {self.minimum} to {self.maximum}{unit}"
        return f"a whole number{unit}"

    def _check_bool(self, value: object) -> bool:
        # Ultra Messaging writes 0 and 1.
        if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
            return bool(value)
        raise Refused(f"it must be {self.limits()}")

    def _check_int(self, value: object) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise Refused(f"it must be {self.limits()}, not of type {type(value).__name__}")
        number = operator.index(value)
        too_small = self.minimum is not None and number < self.minimum
        too_large = self.maximum is not None and number > self.maximum
        if too_small or too_large:
            raise Refused(f"it must be {self.limits()}")
        return 1 << (number - 1).bit_length() if self.power_of_two else number

    def _check_text(self, value: object) -> str:
        if not isinstance(value, str):
            raise Refused(f"it must be {self.limits()}, not of type {type(value).__name__}")
        if self.choices:
            for name in self.names:
                if _fold(name) == _fold(value):
                    return dict(self.synonyms).get(name, name)
            raise Refused(f"it must be {self.limits()}{self._guess(value)}")
        try:
            length = len(value.encode())
        except UnicodeEncodeError as error:
            raise Refused(f"it must be {self.limits()} ({error.reason})") from None
        if self.maximum is not None and length > self.maximum:
            raise Refused(f"it must be {self.limits()}, not {length}")
        try:
            return self.form.read(value) if self.form is not None else value
        except ValueError:
            raise Refused(f"it must be {self.limits()}") from None

    def _guess(self, value: str) -> str:
        """Returns a hint at the choice that was probably meant; empty without one."""
        folded = _fold(value)
        close = difflib.get_close_matches(folded, self.names, n=1)
        meant = dict(self.guesses).get(folded) or next(iter(close), "")
        return f"; did you mean {meant}?" if meant else ""


def _fold(choice: str) -> str:
    """Returns a choice without case and hyphens: LBT-IPC, lbt-ipc and lbtipc are one transport."""
    return choice.casefold().replace("-", "").replace("_", "")


class OptionValues(Mapping[str, Value]):
    """The values of one scope: a frozen mapping from names to values, which are attributes, too."""

    _values: Mapping[str, Value]
    scope: ClassVar[ScopeName]
    rows: ClassVar[Mapping[str, Option[bool] | Option[int] | Option[str]]]

    def __init_subclass__(cls, *, scope: ScopeName) -> None:
        """Gives each option of the class and its bases its name and scope."""
        super().__init_subclass__()
        rows = {}
        # The options of the class come first, then those of its bases in their order.
        for base in cls.__mro__:
            for name, row in vars(base).copy().items():
                if isinstance(row, Option) and name not in rows:
                    rows[name] = dataclasses.replace(row, name=name, scope=scope)
                    setattr(cls, name, rows[name])
        cls.scope = scope
        cls.rows = MappingProxyType(rows)

    def __init__(self, given: Mapping[str, Value] | None = None) -> None:
        """Keeps checked values; options that are not given have their defaults.

        Args:
            given: values that `Option.check` has returned, by name.
        """
        defaults = {name: row.default for name, row in self.rows.items()}
        object.__setattr__(self, "_values", MappingProxyType(defaults | dict(given or {})))

    def __setattr__(self, name: str, value: object) -> None:
        """Refuses changes, because values are checked only once, when they are made."""
        raise AttributeError(f"option values are frozen; give {name} when the {self.scope} is made")

    def __getitem__(self, name: str) -> Value:
        """Returns the value of an option, by its name."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names of the options, in the order of the table."""
        return iter(self._values)

    def __len__(self) -> int:
        """Returns the number of options of the scope."""
        return len(self._values)

    def __repr__(self) -> str:
        """Returns a text with the values that differ from the defaults."""
        changed = (f"{name}={value!r}" for name, value in self.items() if value != self.rows[name].default)
        return f"{type(self).__name__}({', '.join(changed)})"
