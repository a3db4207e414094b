"""The offsets of a stream as Spark keeps them: JSON of numbers and texts that is always written in one form.

Spark compares offsets as texts, so equal offsets must have equal texts::

    {"archive": "<id>", "o": {"<stream>/<partition>": 120000}, "v": 1}

`o` has the next offset to read of each log. Other keys stand beside it only while they are needed:

- `first` in the offset at which a new query begins, and `from` in the offset after it, with that begin: when Spark
  repeats the first batch it asks again where the batch begins, and "latest" has moved by then.
- `skip` where topics begin later than their log, as `startingOffsets` can say: log -> topic -> offset before which its
  rows are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ipcbus.errors import ArchiveError, ArchiveMissing
from ipcbus.spark.option_parsers import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1
"""Version of the form; other versions are refused."""

Skips = dict[str, dict[str, int]]
"""Log -> topic -> offset before which the topic is left out."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """The next offset of each log of an archive.

    Attributes:
        archive: id of the archive.
        next: log -> next offset to read.
        is_first: whether a new query begins here.
        begun: where the first batch began, in the offset at its end.
        skip: log -> topic -> offset before which the topic is left out.
    """

    archive: str
    next: Mapping[str, int]
    is_first: bool = False
    begun: Mapping[str, int] | None = None
    skip: Skips = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns what Spark writes down: sorted dictionaries, texts and plain numbers."""
        found: dict[str, Any] = {"archive": self.archive}
        if self.is_first:
            found["first"] = True
        if self.begun is not None:
            found["from"] = _sorted(self.begun)
        found["o"] = _sorted(self.next)
        skip = {key: _sorted(topics) for key, topics in sorted(self.skip.items()) if topics}
        if skip:
            found["skip"] = skip
        found["v"] = VERSION
        return found

    @classmethod
    def parse(cls, found: object, archive: str) -> Offsets:
        """Returns the offsets in what Spark gives back.

        Args:
            found: the parsed JSON.
            archive: id of the archive that is read.

        Raises:
            ArchiveMissing: the offsets are of another archive.
            ArchiveError: `to_json` did not write this.
        """
        if not isinstance(found, dict) or not {"archive", "o", "v"} <= set(found) <= _KEYS:
            raise _refused(found, "it must be an object with the keys archive, o and v, and no unknown key")
        if found["v"] != VERSION:
            raise _refused(found, f"its version is {found['v']!r}, but this release reads {VERSION}")
        if found["archive"] != archive:
            raise ArchiveMissing(
                f"the offsets are of archive {found['archive']!r}, but option archive leads to {archive!r}; "
                "give the archive that the query began with, or a new checkpoint for this one"
            )
        try:
            skips = found.get("skip", {})
            return cls(
                archive,
                _numbers(found["o"]),
                is_first=found.get("first", False) is True,
                begun=_numbers(found["from"]) if "from" in found else None,
                skip={key: _numbers(topics) for key, topics in skips.items()},
            )
        except (ValueError, AttributeError) as error:
            raise _refused(found, str(error)) from None


_KEYS: Final = {"archive", "first", "from", "o", "skip", "v"}


def _numbers(found: object) -> dict[str, int]:
    if not isinstance(found, dict):
        raise ValueError(f"{found!r} is not a JSON object")
    return {str(key): whole(value, 0) for key, value in found.items()}


def _sorted(numbers: Mapping[str, int]) -> dict[str, int]:
    """Returns the numbers sorted by name, as Python integers, as JSON cannot hold those of numpy."""
    return {key: int(numbers[key]) for key in sorted(numbers)}


def _refused(found: object, why: str) -> ArchiveError:
    shown = repr(found)
    return ArchiveError(
        f"{shown if len(shown) <= 200 else shown[:200] + '...'} is not an offset of the data source ipcbus: {why}; "
        "give the checkpoint of a query that read this source"
    )
