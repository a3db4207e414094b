"""The options of the data source `ipcbus`, checked before anything is read.

Where Kafka has an option, its name is Kafka's.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ipcbus.errors import ConfigError
from ipcbus.spark import option_parsers
from ipcbus.spark.option_parsers import EARLIEST, LATEST, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Use = Literal["batch", "stream"]

_CAPITAL: Final = re.compile("[A-Z]")

BATCH_ROWS_MAX: Final = 1 << 20
"""Most rows of an Arrow batch: with topics and source strings of full length they stay below Arrow's 2 GiB."""


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table of options.

    Attributes:
        name: as users write it; Spark ignores its case.
        takes: the values that it accepts, for the reference page and error texts.
        meaning: what it does.
        read: returns the value of a text; raises ValueError, with or without a reason.
        default: the text that is used where the option is not given; empty without a default.
        use: "batch" or "stream" where it has a meaning only there.
    """

    name: str
    takes: str
    meaning: str
    read: Callable[[str], Any]
    default: str = ""
    use: Use | None = None


def flag(name: str, default: str, meaning: str, use: Use | None = None) -> Option:
    """Returns an option that is true or false."""
    return Option(name, "`true`, `false`", meaning, option_parsers.truth, default, use)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The checked options of a batch or stream; the table READ says what each one means."""

    archive: str
    subscribe: tuple[str, ...] | None
    subscribe_pattern: str | None
    assign: dict[str, tuple[int, ...]] | None
    starting: Position
    ending: Position
    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    max_delay_seconds: float
    min_partitions: int
    fail_on_data_loss: bool
    fail_on_missing_topic: bool
    include_headers: bool
    include_value: bool
    include_events: bool
    batch_rows: int
    batch_bytes: int
    group_id: str | None
    pushdown: bool

    @classmethod
    def of(cls, given: Mapping[str, str], use: Use | None = None) -> ReadOptions:
        """Checks the given options.

        Args:
            given: name -> text, in any case of letters.
            use: whether a batch or a stream reads; None where Spark does not say, and options of both are accepted.

        Raises:
            ConfigError: an option is unknown, has no meaning in this use, contradicts another one, or has an invalid
                value. The text names the option and a correct value.
        """
        values = read_table(READ, given, use)
        chosen = [name for name in ("subscribe", "subscribePattern", "assign") if values[name] is not None]
        if len(chosen) > 1:
            raise _wrong(
                f"{' and '.join(chosen)} exclude each other; give one of them, or omit them to read every topic"
            )
        fields = {_CAPITAL.sub(r"_\g<0>", name).lower(): value for name, value in values.items()}
        return cls(
            **{name: fields[name] for name in cls.__dataclass_fields__.keys() & fields.keys() - {"archive"}},
            archive=_archive(values),
            starting=_starting(values, use),
            ending=_ending(values, use),
            max_offsets=values["maxOffsetsPerTrigger"],
            max_bytes=values["maxBytesPerTrigger"],
            min_offsets=_min_offsets(values),
            max_delay_seconds=values["maxTriggerDelay"],
        )


def read_table(table: tuple[Option, ...], given: Mapping[str, str], use: Use | None = None) -> dict[str, Any]:
    """Returns every option of a table with its value; None where it has no value.

    Raises:
        ConfigError: an option is unknown or not for this use, or its text is invalid.
    """
    rows = {row.name.lower(): row for row in table}
    for name in given:
        if name.lower() == "provider":
            raise ConfigError(
                "data source ipcbus: CREATE TABLE does not work, as Spark drops its options when the table is read; "
                "write CREATE TEMPORARY VIEW ... USING ipcbus OPTIONS (archive '...')"
            )
    for name in given:
        row = rows.get(name.lower())
        if row is None:
            raise _unknown(name, table)
        if row.use is not None and use is not None and row.use != use:
            raise _wrong(f"{row.name} is for a {row.use}, not for a {use}; leave it out")
    by_name = {name.lower(): text for name, text in given.items()}
    values: dict[str, Any] = {}
    for lowered, row in rows.items():
        text = by_name.get(lowered, row.default)
        try:
            values[row.name] = row.read(text) if text or lowered in by_name else None
        except ValueError as error:
            reason = f" ({error})" if str(error) else ""
            raise _wrong(f"{row.name} is {text!r}{reason}; it takes {row.takes}") from None
    return values


def _wrong(text: str) -> ConfigError:
    return ConfigError(f"data source ipcbus: option {text}")


def _unknown(name: str, table: tuple[Option, ...]) -> ConfigError:
    names = [row.name for row in table]
    close = difflib.get_close_matches(name.lower(), [known.lower() for known in names], n=1)
    meant = next((f"; did you mean {known}?" for known in names if close == [known.lower()]), ".")
    return _wrong(f"{name} is unknown{meant} There are: {', '.join(sorted(names, key=str.lower))}")


def _archive(values: dict[str, Any]) -> str:
    path: str | None = values["archive"] or values["path"]
    if not path:
        raise _wrong("archive is missing; give the directory that `ipcbus record --to` wrote")
    scheme, colon, rest = path.partition("://")
    if path.startswith("file:"):
        path = rest if colon else path.removeprefix("file:")
    elif colon:
        raise _wrong(f"archive is {path!r}; {scheme} is not supported; mount the storage and give its directory")
    return os.path.abspath(path)


def _starting(values: dict[str, Any], use: Use | None) -> Position:
    or_latest = values["startingOffsetsByTimestampStrategy"] == "latest"
    if (time_ms := values["startingTimestamp"]) is not None:
        return Position(time_ms=time_ms, or_latest=or_latest)
    if (times_ms := values["startingOffsetsByTimestamp"]) is not None:
        return Position(times_ms=times_ms, or_latest=or_latest)
    position: Position = values["startingOffsets"] or Position(everywhere=LATEST if use == "stream" else EARLIEST)
    if use == "batch" and _mentions(position, LATEST):
        raise _wrong("startingOffsets is latest, so a batch would read nothing; give earliest, or offsets")
    return position


def _ending(values: dict[str, Any], use: Use | None) -> Position:
    if (time_ms := values["endingTimestamp"]) is not None:
        return Position(time_ms=time_ms, or_latest=True)
    if (times_ms := values["endingOffsetsByTimestamp"]) is not None:
        return Position(times_ms=times_ms, or_latest=True)
    position: Position = values["endingOffsets"] or Position(everywhere=LATEST)
    if use == "batch" and _mentions(position, EARLIEST):
        raise _wrong("endingOffsets is earliest, so a batch would read nothing; give latest, or offsets")
    return position


def _mentions(position: Position, offset: int) -> bool:
    return position.everywhere == offset or any(offset in by.values() for by in (position.offsets or {}).values())


def _min_offsets(values: dict[str, Any]) -> int | None:
    least: int | None = values["minOffsetsPerTrigger"]
    most: int | None = values["maxOffsetsPerTrigger"]
    if least is not None and most is not None and least > most:
        raise _wrong(f"minOffsetsPerTrigger is {least}, but maxOffsetsPerTrigger is {most}; give at most that")
    return least


# ------------------------------------------------------------------------------------------------ the table

_OFFSETS = '`earliest`, `latest`, or JSON: `{"topic":{"0":123,"1":-2}}`'
_TIMES = 'JSON, ms since the epoch: `{"topic":{"0":1700000000000}}`'
_COUNT = "a number from 1"

READ: Final = (
    Option("archive", "a directory", "Directory of the archive.", option_parsers.name),
    Option(
        "path",
        "a directory",
        "The directory of the archive, as `load(path)` passes it; `archive` takes precedence.",
        option_parsers.name,
    ),
    Option("subscribe", "topics, with commas between", "Read these topics.", option_parsers.topics),
    Option(
        "subscribePattern",
        "a regular expression of Python",
        "Read the topics whose whole name this expression matches.",
        option_parsers.pattern,
    ),
    Option(
        "assign",
        'JSON: `{"topic":[0,1]}`',
        "Read only these topics, each of these partitions.",
        option_parsers.assigned,
    ),
    Option(
        "startingOffsets",
        _OFFSETS,
        "Where to begin; -2 is earliest, -1 latest. A batch begins at `earliest`, a new stream at `latest`; a stream "
        "with a checkpoint goes on at the checkpoint. Topics and logs that the JSON does not name begin at the "
        "earliest offset, also logs that appear later. A line of a checkpoint's offsets is accepted as well.",
        option_parsers.position,
    ),
    Option(
        "startingTimestamp",
        "ms since the epoch",
        "Begin with the first message received at this time or later; precedes the next two options.",
        option_parsers.number(0),
    ),
    Option(
        "startingOffsetsByTimestamp",
        _TIMES,
        "Such times by topic and partition; takes precedence over `startingOffsets`.",
        option_parsers.times,
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "`error`, `latest`",
        "Where no message was received at that time or later: fail, or begin at the latest offset.",
        option_parsers.choice("error", "latest"),
        default="error",
    ),
    Option(
        "endingOffsets",
        _OFFSETS,
        "Where a batch ends, exclusive; `latest` by default.",
        option_parsers.position,
        use="batch",
    ),
    Option(
        "endingTimestamp",
        "ms since the epoch",
        "End before the first message received at this time or later; takes precedence over the next option.",
        option_parsers.number(0),
        use="batch",
    ),
    Option("endingOffsetsByTimestamp", _TIMES, "Such times by topic and partition.", option_parsers.times, use="batch"),
    Option(
        "maxOffsetsPerTrigger",
        _COUNT,
        "Most offsets of a micro-batch, divided among the partitions in proportion to what they have to read.",
        option_parsers.number(1),
        use="stream",
    ),
    Option(
        "maxBytesPerTrigger",
        _COUNT,
        "Most bytes of messages of a micro-batch, divided in the same way; a single message may be longer.",
        option_parsers.number(1),
        use="stream",
    ),
    Option(
        "minOffsetsPerTrigger",
        _COUNT,
        "Wait for this many new offsets before the next micro-batch, but not longer than `maxTriggerDelay`.",
        option_parsers.number(1),
        use="stream",
    ),
    Option(
        "maxTriggerDelay",
        "a time such as `500ms`, `30s`, `15m`",
        "Longest wait for `minOffsetsPerTrigger`.",
        option_parsers.duration,
        default="15m",
        use="stream",
    ),
    Option(
        "minPartitions",
        _COUNT,
        "Least number of tasks among which the rows are divided.",
        option_parsers.number(1, 1 << 16),
        default="1",
    ),
    flag(
        "failOnDataLoss",
        "true",
        "Fail when the query needs offsets that the archive lacks or that are damaged; with `false`, leave them out, "
        "with a warning that counts them. A log with a damaged watermark or list of names is then left out.",
    ),
    flag(
        "failOnMissingTopic",
        "false",
        "Fail when the archive lacks a topic of `subscribe` or `assign`, or a match of `subscribePattern`; with "
        "`false`, one warning says so, with the most similar names.",
    ),
    flag("includeHeaders", "false", "Add the column `headers`."),
    flag("includeValue", "true", "With `false`, leave the column `value` out; the bytes of messages are not read."),
    flag(
        "includeEvents",
        "false",
        "Add events: losses, beginnings and ends of sessions; with the columns `type`, `numbers`, `source`.",
    ),
    Option(
        "batchRows",
        "a number to 1048576",
        "Most rows of an Arrow batch.",
        option_parsers.number(1, BATCH_ROWS_MAX),
        default="65536",
    ),
    Option(
        "batchBytes",
        "a number from 1 to 1073741824",
        "Most bytes of messages of an Arrow batch; a single message may be longer.",
        option_parsers.number(1, 1 << 30),
        default="33554432",
    ),
    Option(
        "groupId",
        "1 to 100 letters, digits and `._-`",
        "Name of a cursor: the archive keeps the rows that this group has not read yet, up to its hard cap.",
        option_parsers.group,
        use="stream",
    ),
    flag(
        "pushdown",
        "false",
        "Evaluate filters before rows become Arrow; needs `spark.sql.python.filterPushdown.enabled`.",
        use="batch",
    ),
)
"""Every option of reading."""
