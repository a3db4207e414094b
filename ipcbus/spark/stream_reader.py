"""Stream reading: what an archive holds, and what is recorded into it meanwhile."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ipcbus.archive.archive import Archive
from ipcbus.spark import partitions, read_positions
from ipcbus.spark.batch_reader import TaskReader
from ipcbus.spark.offsets import Offsets
from ipcbus.spark.read_limits import share
from ipcbus.spark.topic_selection import TopicSelection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from ipcbus.archive.log import Log
    from ipcbus.spark.partitions import Part
    from ipcbus.spark.read_options import ReadOptions


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a stream; a copy of it goes to the tasks that read.

    Offsets that Spark got are published and never change, so a batch that is repeated after a crash has the same rows
    in the same order.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Prepares to read the columns of a schema.

        Raises:
            ConfigError: the schema has an unknown column.
        """
        self._options = options
        self._rows = TaskReader(options, schema)
        self._target: Mapping[str, int] | None = None
        self._topics_checked = False  # for topics that are not there
        self._batch_planned_at = time.monotonic()
        self._batches_planned = 0

    def initialOffset(self) -> dict[str, Any]:
        """Returns where a new query begins.

        Raises:
            ConfigError: the begin that the options give does not fit this archive.
            ArchiveError: the archive, or a topic or offset that the options name, does not exist.
            StorageError: the cursor of the `groupId` cannot be written.
        """
        archive = self._archive()
        self._check_topics(archive)
        begins, skip = read_positions.starts(archive, self._options)
        self._hold_rows(archive, begins)
        return Offsets(archive.id, begins, is_first=True, skip=skip).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns the limit of a micro-batch that the options give."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable() if self._options.min_offsets is None else ReadMinRows(self._options.min_offsets)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Returns where the micro-batch that begins at `start` ends; `start` itself when there is nothing to read.

        Raises:
            ArchiveError: `start` is of another archive, or not an offset.
        """
        archive = self._archive()
        self._check_topics(archive)
        begin = Offsets.parse(start, archive.id)
        logs = read_positions.logs(archive, self._options)
        ends = self._ends(logs)
        for key, end in ends.items():
            if end < begin.next.get(key, 0) and self._target is None:
                partitions.warn_once(
                    f"log {key} of {archive.path} ends at {end}, but the query has read it up to {begin.next[key]}: "
                    "it is an older copy, or power was lost and no recorder has started since; the query reads none of "
                    "the log until the log is longer"
                )
        # A log that no longer exists keeps its offset; planning reports what is lost.
        ends = {key: max(offset, ends.get(key, offset)) for key, offset in begin.next.items()} | {
            key: end for key, end in ends.items() if key not in begin.next
        }
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(logs, begin.next, ends, limit)
        if all(begin.next.get(key, 0) == end for key, end in ends.items()):
            return start
        self._batch_planned_at = time.monotonic()
        self._batches_planned += 1
        return Offsets(
            archive.id,
            ends,
            begun=begin.next if begin.is_first else None,
            skip={
                key: {topic: offset for topic, offset in topics.items() if offset > begin.next.get(key, 0)}
                for key, topics in begin.skip.items()
            },
        ).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Limits the query to what the archive holds now.

        Raises:
            ArchiveError: the archive does not exist.
        """
        self._target = self._ends(read_positions.logs(self._archive(), self._options))

    def reportLatestOffset(self) -> dict[str, Any]:
        """Returns the end of the archive, for the query's progress."""
        archive = self._archive()
        return Offsets(archive.id, self._ends(read_positions.logs(archive, self._options))).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        """Returns a task for each part of each log.

        Raises:
            OffsetsExpired: some of these offsets do not exist, and `failOnDataLoss` is true.
            ArchiveError: the offsets are of another archive, or not offsets.
        """
        archive = self._archive()
        begin, until = Offsets.parse(start, archive.id), Offsets.parse(end, archive.id)
        if start == end:
            return []
        # In a repeated first batch Spark has asked for a new begin; only the end is that of the first try.
        first = until.next if until.is_first else begin.next if until.begun is None else until.begun
        return partitions.plan(archive, self._options, first, until.next, until.skip, {})

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields Arrow record batches of a task; raises what `TaskReader.batches` does."""
        return self._rows.batches(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commits the cursor of the `groupId`, if the query has one, so that the archive may remove what was read.

        Raises:
            ArchiveError: `end` is of another archive, or not an offset.
            StorageError: the cursor cannot be written.
        """
        if self._options.group_id is not None:
            archive = self._archive()
            self._commit(archive, self._options.group_id, Offsets.parse(end, archive.id).next)

    def _check_topics(self, archive: Archive) -> None:
        """Warns once of topics that the archive lacks; they may appear later."""
        if not self._topics_checked:
            read_positions.check_topics(archive, self._options)
            self._topics_checked = True

    def _hold_rows(self, archive: Archive, begins: Mapping[str, int]) -> None:
        """Makes the archive keep the rows of a new query, whose first commit comes with its second batch."""
        group = self._options.group_id
        if group is None:
            return
        known = archive.cursors.all().get(group)
        if known is not None:
            # A repeated first batch begins where it began before, though "latest" has moved: its rows stay held.
            begins = {key: min(offset, begins.get(key, offset)) for key, offset in known.offsets.items()}
        self._commit(archive, group, begins)

    def _commit(self, archive: Archive, group: str, offsets: Mapping[str, int]) -> None:
        archive.cursors.commit(group, offsets, partitions=TopicSelection.of(self._options).partitions)

    def _archive(self) -> Archive:
        # Opened for each call: it is cheap to open, and this object is sent to the tasks.
        return Archive(self._options.archive)

    def _ends(self, logs: Mapping[str, Log]) -> dict[str, int]:
        """Returns the offset after the last published row of each log, or the limit that availableNow has set."""
        found = {key: log.bounds()[1] for key, log in logs.items()}
        if self._target is None:
            return found
        return {key: min(found[key], target) for key, target in self._target.items() if key in found}

    def _limited(
        self, logs: Mapping[str, Log], begin: Mapping[str, int], ends: Mapping[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        """Returns ends that keep the limits of Spark and of the options."""
        begins = {key: begin.get(key, 0) for key in ends}
        new = sum(ends[key] - begins[key] for key in ends)
        least = limit.min_rows if isinstance(limit, ReadMinRows) else self._options.min_offsets
        waited = time.monotonic() - self._batch_planned_at
        # With availableNow no further rows come, so it does not wait.
        if least is not None and new < least and self._target is None and waited < self._options.max_delay_seconds:
            return begins
        turn = sum(begins.values())
        limited = dict(ends)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_offsets
        if rows is not None:
            shares = share({key: ends[key] - begins[key] for key in ends}, rows, turn)
            limited = {key: begins[key] + shares[key] for key in ends}
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_bytes
        return limited if size is None else _ends_within(logs, begins, limited, size, self._batches_planned)


def _ends_within(
    logs: Mapping[str, Log], begins: Mapping[str, int], ends: Mapping[str, int], size: int, turn: int
) -> dict[str, int]:
    """Returns ends such that messages have at most `size` bytes together, or one longer message.

    The next message of one log, in turn, goes first, as it may be longer than the share of this log will ever be.
    """
    there = {key: max(begins[key], logs[key].bounds()[0]) for key in ends if key in logs and ends[key] > begins[key]}
    if not there:
        return dict(begins)
    first = sorted(there)[turn % len(there)]
    rest = size - logs[first].size(there[first], there[first] + 1)
    there[first] += 1
    found = {**begins, first: there[first]}
    if rest > 0:
        shares = share({key: logs[key].size(there[key], ends[key]) for key in there}, rest, turn)
        found |= {key: logs[key].reach(begin, ends[key], shares[key]) for key, begin in there.items()}
    return found
