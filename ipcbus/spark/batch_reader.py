"""Reading a batch; and what a task does, of a batch and of a stream."""

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
    from collections.abc import Iterable, Iterator

    from pyspark.sql.datasource import Filter, InputPartition
    from pyspark.sql.types import StructType

    from ipcbus.archive.log import Log
    from ipcbus.archive.segments import Chunk
    from ipcbus.spark.read_options import ReadOptions


class Rows:
    """Makes Arrow batches of what a task is told to read; it is sent to where the task runs."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """For the columns of a schema.

        Raises:
            ConfigError: the schema names something that there is not.
        """
        check(schema)
        self._options = options
        self._names = schema.names
        self._nullable = [column.nullable for column in schema.fields]
        self.conditions: list[pushed_filters.Condition] = []

    def batches(self, part: InputPartition) -> Iterator[Any]:
        """Record batches of what a task reads.

        Raises:
            ArchiveMissing: the archive is not on this host, or another one lies there.
            ArchiveDamaged: its bytes contradict their checksums, and `failOnDataLoss` is true.
            OffsetsExpired: rows were taken away since the task was planned, and `failOnDataLoss` is true.
        """
        if not isinstance(part, Part):
            return  # Spark asks once even where nothing is to be read
        log = _open(part).log(part.key)
        if (damage := partitions.unreadable(log, self._options)) is not None:
            partitions.lost(self._options, damage, part.start, part.end)
            return
        labels = Labels(log)
        subscription = TopicSelection.of(self._options)
        choice = RowSelection(
            topic=subscription.wants(log.partition),
            events=self._options.include_events,
            passes=pushed_filters.topics(self.conditions),
            begins=part.begins,
            ends=part.ends,
            tests=pushed_filters.numbers(self.conditions),
            ranges=pushed_filters.ranges(self.conditions),
        )
        converter = Converter(labels, arrow_schema(self._names, self._nullable), choice)
        if converter.wants_none:
            return
        missing: list[Chunk] = []

        def tell(first: int, end: int, why: str) -> None:
            partitions.lost(self._options, why, first, end)
            missing.append(loss_row(first, end))

        for chunk in self._chunks(log, part, converter):
            for batch in converter.good_batches(chunk, None if self._options.fail_on_data_loss else tell):
                yield from filter(None, map(converter.batch, missing))
                missing.clear()
                yield batch
        yield from filter(None, map(converter.batch, missing))

    def _chunks(self, log: Log, part: Part, converter: Converter) -> Iterator[Chunk]:
        """Yields the rows of a task; where some are lost and that is no error, a row that says so in their place."""
        missing: list[Chunk] = []

        def tell(first: int, end: int, why: str = "a hole") -> None:
            partitions.lost(self._options, f"log {part.key} of {part.path}: {why}", first, end)
            missing.append(loss_row(first, end))

        careful = self._options.fail_on_data_loss
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
                    on_damage=None if careful else tell,
                    on_hole=None if careful else tell,
                ):
                    yield from missing
                    missing.clear()
                    at = chunk.offset + len(chunk.rows)
                    yield chunk
                at = part.end
            except ArchiveDamaged as error:  # the watermark or the names, since the task has begun
                if careful:
                    raise
                tell(at, part.end, str(error))
                break
            except OffsetsExpired:
                first = log.bounds()[0]
                if careful or first <= at:
                    raise
                # Retention was faster than this task.
                tell(at, min(first, part.end), "it is no longer kept")
                at = first
        yield from missing


def _open(part: Part) -> Archive:
    try:
        return Archive(part.path, expect_id=part.archive)
    except ArchiveMissing as error:
        raise ArchiveMissing(
            f"{error}; the query was planned on host {part.host}, which has it: run Spark's executors there, or let "
            "all hosts see the directory under this path"
        ) from error


class Reader(DataSourceReader):
    """Reads what an archive holds when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """For the columns of a schema.

        Raises:
            ConfigError: the schema names something that there is not.
        """
        self._options = options
        self._rows = Rows(options, schema)

    def partitions(self) -> list[Part]:
        """Returns a task for each part of each log.

        Raises:
            ConfigError: where the options want to begin or end makes no sense for this archive.
            ArchiveError: the archive or what was asked for of it is not there.
        """
        archive = Archive(self._options.archive)
        read_positions.look_for_topics(archive, self._options)
        begin, skip = read_positions.starts(archive, self._options)
        end, stop = read_positions.ends(archive, self._options)
        begin, end = self._within(begin, end)
        return partitions.plan(archive, self._options, begin, end, skip, stop)

    def _within(self, begin: dict[str, int], end: dict[str, int]) -> tuple[dict[str, int], dict[str, int]]:
        """Returns the logs and offsets of these that can pass the filters: for others there are no tasks."""
        limits = pushed_filters.ranges(self._rows.conditions)
        low, high = limits.get("offset", (0, OFFSET_END))
        least, most = limits.get("partition", (0, OFFSET_END))
        logs = [key for key in end if least <= int(key.rpartition("/")[2]) <= most]
        if "offset" in limits:
            # What ends before it begins is left for planning to refuse.
            for key in [key for key in logs if begin[key] <= end[key]]:
                begin[key] = min(max(begin[key], low), end[key])
                end[key] = max(begin[key], min(end[key], high + 1))
        return begin, {key: end[key] for key in logs}

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow record batches of a task; raises what `Rows.batches` does."""
        return self._rows.batches(partition)


class FilteringReader(Reader):
    """The same, and takes filters over from Spark; it insists on a setting of the session for that."""

    def pushFilters(self, filters_: list[Filter]) -> Iterable[Filter]:
        """Keeps the filters that it can evaluate itself, and returns the others."""
        for each in filters_:
            condition = pushed_filters.condition(each)
            if condition is None:
                yield each
            else:
                self._rows.conditions.append(condition)


def reader(options: ReadOptions, schema: StructType) -> Reader:
    """Returns the reader that the options ask for."""
    return (FilteringReader if options.pushdown else Reader)(options, schema)
