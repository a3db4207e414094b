"""How far a stream has read, as Spark keeps it: JSON of plain numbers and texts that is always written the same way.

Spark compares offsets as texts, so equal ones have to be equal to the letter::

    {"archive": "<id>", "o": {"<stream>/<partition>": 120000}, "v": 1}

`o` has the offset that each log is read next from. Two more keys stand beside, each only while it is needed:

- `first` in the offset that a new query begins with, and `from` in the one after it, which has the same content: when
  Spark repeats a first batch it asks anew where that begins, and by then "latest" is another place.
- `skip` where topics begin later than their log, as `startingOffsets` may say of each: log -> topic -> offset before
  which its rows are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ipcbus.errors import ArchiveError, ArchiveMissing
from ipcbus.spark.option_parsers import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1
"""Form of the JSON; another one is refused."""

Skips = dict[str, dict[str, int]]
"""Log -> topic -> offset before which it is left out."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """Next offset of each log of an archive.

    Attributes:
        archive: id of the archive.
        next: log -> offset to read next.
        is_first: whether a new query begins here.
        begun: where the first batch began, in the offset that ends it.
        skip: what is left out of a log after its offset here.
    """

    archive: str
    next: Mapping[str, int]
    is_first: bool = False
    begun: Mapping[str, int] | None = None
    skip: Skips = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What Spark writes down; sorted, and of nothing but dictionaries, texts and plain numbers."""
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
        """Checks what Spark hands back.

        Args:
            found: the parsed JSON.
            archive: id of the archive that is read.

        Raises:
            ArchiveMissing: it is of another archive.
            ArchiveError: it is nothing that `to_json` made.
        """
        if not isinstance(found, dict) or not {"archive", "o", "v"} <= set(found) <= _KEYS:
            raise _refused(found, "it needs archive, o and v")
        if found["v"] != VERSION:
            raise _refused(found, f"its form is {found['v']!r}, and this release knows {VERSION}")
        if found["archive"] != archive:
            raise ArchiveMissing(
                f"the offsets are of archive {found['archive']!r}, and option archive leads to {archive!r}; "
                "give the archive that the query began with, or a new checkpoint to begin with this one"
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
        raise ValueError(f"{found!r} is no object")
    return {str(key): whole(value, 0) for key, value in found.items()}


def _sorted(numbers: Mapping[str, int]) -> dict[str, int]:
    """In order of the names, and as Python's own integers: numpy's are no JSON."""
    return {key: int(numbers[key]) for key in sorted(numbers)}


def _refused(found: object, why: str) -> ArchiveError:
    shown = repr(found)
    return ArchiveError(
        f"{shown if len(shown) <= 200 else shown[:200] + '...'} is no offset of the data source ipcbus: {why}; "
        "give the checkpoint of a query that read this source"
    )
