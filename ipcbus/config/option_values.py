"""What one option is, and how the values of a scope are held.

A scope is a class whose attributes are its options (see `options.py`). Read on the class, an attribute is the
row of the table; read on an instance, it is the value, with its static type.
"""

from __future__ import annotations

import dataclasses
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

# No limit of an option is as long; what is longer takes Python long to read.
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")

ScopeName = Literal["context", "source", "receiver", "event_queue", "wildcard_receiver"]


class Refused(Exception):
    """A value does not fit its option; the text says what would. `Config` adds option, scope and value."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option(Generic[T]):
    """One row of the table of options."""

    default: T
    meaning: str
    """What it does, where it differs from Ultra Messaging too."""
    unit: str = ""
    minimum: int | None = None
    maximum: int | None = None
    """Of a number its largest value, of a text its length in bytes of UTF-8."""
    choices: tuple[str, ...] = ()
    form: Form | None = None
    """What a text has to be beyond that."""
    several: bool = False
    """Each line of a flat file adds one, instead of taking the place of the one before."""
    power_of_two: bool = False
    """Rounded up to the next power of two."""
    subject_to_change: bool = False
    special_zero: bool = False
    """0 is no quantity but means off, or without limit."""
    name: str = ""
    scope: str = ""

    @overload
    def __get__(self, values: None, owner: type[OptionValues]) -> Self: ...
    @overload
    def __get__(self, values: OptionValues, owner: type[OptionValues]) -> T: ...
    def __get__(self, values: OptionValues | None, owner: type[OptionValues]) -> Self | T:
        """The row itself when read on the class, the value when read on an instance."""
        return self if values is None else cast("T", values[self.name])

    @property
    def kind(self) -> type[T]:
        """The type of its values: bool, int or str."""
        return type(self.default)

    def check(self, value: object) -> T:
        """Returns `value` as this option stores it.

        Raises:
            Refused: it has the wrong type or is out of range.
        """
        if self.kind is bool:
            return cast("T", self._check_bool(value))
        if self.kind is int:
            return cast("T", self._check_int(value))
        return cast("T", self._check_text(value))

    def parse(self, text: str) -> T:
        """Returns the value that a text of a flat file means.

        Raises:
            Refused: it has the wrong form or is out of range.
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
        """What the option accepts, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
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
        # Ultra Messaging writes 0 and 1; no other number is a truth value.
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
            for choice in self.choices:
                if _fold(choice) == _fold(value):
                    return choice
            raise Refused(f"it must be {self.limits()}")
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


def _fold(choice: str) -> str:
    """LBT-IPC, lbt-ipc and lbtipc are one transport; so are busy_wait and busy-wait one behaviour."""
    return choice.casefold().replace("-", "").replace("_", "")


class OptionValues(Mapping[str, Value]):
    """The values of one scope: a frozen mapping whose items are attributes too."""

    _values: Mapping[str, Value]
    scope: ClassVar[ScopeName]
    rows: ClassVar[Mapping[str, Option[bool] | Option[int] | Option[str]]]

    def __init_subclass__(cls, *, scope: ScopeName) -> None:
        """Tells each option of the class and its bases its name and scope."""
        super().__init_subclass__()
        rows = {}
        # Its own first, then those of its bases in their order.
        for base in cls.__mro__:
            for name, row in vars(base).copy().items():
                if isinstance(row, Option) and name not in rows:
                    rows[name] = dataclasses.replace(row, name=name, scope=scope)
                    setattr(cls, name, rows[name])
        cls.scope = scope
        cls.rows = MappingProxyType(rows)

    def __init__(self, given: Mapping[str, Value] | None = None) -> None:
        """Takes checked values; what is not given has its default.

        Args:
            given: values that `Option.check` has returned, by name.
        """
        defaults = {name: row.default for name, row in self.rows.items()}
        object.__setattr__(self, "_values", MappingProxyType(defaults | dict(given or {})))

    def __setattr__(self, name: str, value: object) -> None:
        """Refuses: values are checked once, when they are made."""
        raise AttributeError(f"option values are frozen; give {name} when the {self.scope} is made")

    def __getitem__(self, name: str) -> Value:
        """The value of an option, by its name."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """The names of the options, in the order of the table."""
        return iter(self._values)

    def __len__(self) -> int:
        """The number of options of the scope."""
        return len(self._values)

    def __repr__(self) -> str:
        """Names what differs from the defaults."""
        changed = (f"{name}={value!r}" for name, value in self.items() if value != self.rows[name].default)
        return f"{type(self).__name__}({', '.join(changed)})"
