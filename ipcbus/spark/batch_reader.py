"""Batch reading, and what the tasks of batches and streams do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader

from ipcbus.archive.archive import Archive
from ipcbus.archive.archive_layout import OFFSET_END
from ipcbus.archive.arrow import Converter, chunks, loss_row
from ipcbus.archive.arrow import schema as arrow_schema
from ipcbus.archive.row_filter import Labels, RowSelection
from ipcbus.errors import ArchiveDamaged, ArchiveMissing, OffsetsExpired
from ipcbus.spark import partitions, pushed_filters, read_positions
from ipcbus.spark.partitions import Part
from ipcbus.spark.row_schema import check
from ipcbus.spark.topic_selection import TopicSelection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql.datasource import Filter, InputPartition
    from pyspark.sql.types import StructType

    from ipcbus.archive.log import Log
    from ipcbus.archive.segments import Chunk
    from ipcbus.spark.read_options import ReadOptions

    _Report = Callable[..., None]


class TaskReader:
    """Reads the part of a task as Arrow batches; Spark sends it to where the task runs."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Prepares to read the columns of a schema.

        Raises:
            ConfigError: the schema has an unknown column.
        """
        check(schema)
        self._options = options
        self._names = schema.names
        self._nullable = [column.nullable for column in schema.fields]
        self.conditions: list[pushed_filters.Condition] = []

    def batches(self, part: InputPartition) -> Iterator[Any]:
        """Yields the record batches of a task.

        Raises:
            ArchiveMissing: this host does not have the archive, or has another one at its path.
            ArchiveDamaged: bytes contradict their checksums, and `failOnDataLoss` is true.
            OffsetsExpired: rows were removed since the task was planned, and `failOnDataLoss` is true.
        """
        if not isinstance(part, Part):
            return  # Spark calls once even where there is nothing to read
        log = _open(part).log(part.key)
        if (damage := partitions.damage_of(log, self._options)) is not None:
            partitions.report_lost(self._options, damage, part.start, part.end)
            return
        labels = Labels(log)
        subscription = TopicSelection.of(self._options)
        selection = RowSelection(
            topic=subscription.wants(log.partition),
            events=self._options.include_events,
            passes=pushed_filters.topics(self.conditions),
            begins=part.begins,
            ends=part.ends,
            tests=pushed_filters.numbers(self.conditions),
            ranges=pushed_filters.ranges(self.conditions),
        )
        converter = Converter(labels, arrow_schema(self._names, self._nullable), selection)
        if converter.wants_none:
            return
        missing: list[Chunk] = []  # a row of a loss for each range that is left out

        def report(first: int, end: int, why: str = "a hole") -> None:
            partitions.report_lost(self._options, f"log {part.key} of {part.path}: {why}", first, end)
            missing.append(loss_row(first, end))

        on_damage = None if self._options.fail_on_data_loss else report
        for chunk in self._chunks(log, part, converter, on_damage):
            for batch in converter.good_batches(chunk, on_damage):
                yield from filter(None, map(converter.batch, missing))
                missing.clear()
                yield batch
        yield from filter(None, map(converter.batch, missing))

    def _chunks(self, log: Log, part: Part, converter: Converter, report: _Report | None) -> Iterator[Chunk]:
        """Yields the rows of a task; `report` gets those that are missing, and without it they are an error."""
        at = part.start
        while at < part.end:
            try:
                for chunk in chunks(
                    log,
                    at,
                    part.end,
                    converter,
                    max_rows=self._options.batch_rows,
                    max_bytes=self._options.batch_bytes,
                    on_damage=report,
                    on_hole=report,
                ):
                    at = chunk.offset + len(chunk.rows)
                    yield chunk
                at = part.end
            except ArchiveDamaged as error:  # the watermark or the names were damaged after the task began
                if report is None:
                    raise
                report(at, part.end, str(error))
                break
            except OffsetsExpired:
                first = log.bounds()[0]
                if report is None or first <= at:
                    raise
                # Retention removed rows before this task read them.
                report(at, min(first, part.end), "they are no longer kept")
                at = first


def _open(part: Part) -> Archive:
    try:
        return Archive(part.path, expect_id=part.archive)
    except ArchiveMissing as error:
        raise ArchiveMissing(
            f"{error}; the query was planned on host {part.host}, which has it: run Spark's executors there, or "
            "mount the directory on all hosts at this path"
        ) from error


class Reader(DataSourceReader):
    """Reads what an archive holds when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Prepares to read the columns of a schema.

        Raises:
            ConfigError: the schema has an unknown column.
        """
        self._options = options
        self._rows = TaskReader(options, schema)

    def partitions(self) -> list[Part]:
        """Returns a task for each part of each log.

        Raises:
            ConfigError: the begin or end that the options give does not fit this archive.
            ArchiveError: the archive, or a topic or offset that the options name, does not exist.
        """
        archive = Archive(self._options.archive)
        read_positions.check_topics(archive, self._options)
        begin, skip = read_positions.starts(archive, self._options)
        end, stop = read_positions.ends(archive, self._options)
        begin, end = self._within(begin, end)
        return partitions.plan(archive, self._options, begin, end, skip, stop)

    def _within(self, begin: dict[str, int], end: dict[str, int]) -> tuple[dict[str, int], dict[str, int]]:
        """Returns the offsets that can pass the filters, by log; logs without such offsets get no tasks."""
        limits = pushed_filters.ranges(self._rows.conditions)
        low, high = limits.get("offset", (0, OFFSET_END))
        least, most = limits.get("partition", (0, OFFSET_END))
        logs = [key for key in end if least <= int(key.rpartition("/")[2]) <= most]
        if "offset" in limits:
            # Planning refuses a range that ends before it begins.
            for key in [key for key in logs if begin[key] <= end[key]]:
                begin[key] = min(max(begin[key], low), end[key])
                end[key] = max(begin[key], min(end[key], high + 1))
        return begin, {key: end[key] for key in logs}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields Arrow record batches of a task; raises what `TaskReader.batches` does."""
        return self._rows.batches(partition)


class FilteringReader(Reader):
    """A reader that evaluates filters itself; Spark needs a setting of the session for that."""

    def pushFilters(self, filters_: list[Filter]) -> Iterable[Filter]:
        """Takes the filters that it can evaluate itself, and returns the others."""
        for each in filters_:
            condition = pushed_filters.condition(each)
            if condition is None:
                yield each
            else:
                self._rows.conditions.append(condition)


def reader(options: ReadOptions, schema: StructType) -> Reader:
    """Returns a reader with or without filters, as the options say."""
    return (FilteringReader if options.pushdown else Reader)(options, schema)
