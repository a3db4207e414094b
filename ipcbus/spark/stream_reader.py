"""Reading a stream: what an archive holds, and what is recorded into it meanwhile."""

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
from ipcbus.spark.batch_reader import Rows
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
    """The side of a stream that plans, and what is sent to the tasks that read.

    Offsets that were given to Spark are published and stay what they are, so that a batch that is repeated after any
    crash has the same rows in the same order.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """For the columns of a schema.

        Raises:
            ConfigError: the schema names something that there is not.
        """
        self._options = options
        self._rows = Rows(options, schema)
        self._target: Mapping[str, int] | None = None
        self._looked = False  # for topics that are not there
        self._given_at = time.monotonic()
        self._given = 0

    def initialOffset(self) -> dict[str, Any]:
        """Returns where a new query begins.

        Raises:
            ConfigError: where the options want to begin makes no sense for this archive.
            ArchiveError: the archive or what was asked for of it is not there.
            StorageError: the cursor of the `groupId` cannot be written.
        """
        archive = self._archive()
        self._look(archive)
        begins, skip = read_positions.starts(archive, self._options)
        self._hold(archive, begins)
        return Offsets(archive.id, begins, is_first=True, skip=skip).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns the limit that the options set on a micro-batch."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable() if self._options.min_offsets is None else ReadMinRows(self._options.min_offsets)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Returns where the micro-batch that begins at `start` ends; `start` itself when there is nothing for it.

        Raises:
            ArchiveError: `start` is of another archive, or no offset.
        """
        archive = self._archive()
        self._look(archive)
        begin = Offsets.parse(start, archive.id)
        logs = read_positions.logs(archive, self._options)
        ends = self._ends(logs)
        for key, end in ends.items():
            if end < begin.next.get(key, 0) and self._target is None:
                partitions.warn_once(
                    f"log {key} of {archive.path} ends at {end}, and the query has read it up to {begin.next[key]}: an "
                    "older copy lies there, or power was lost and no recorder has started since; nothing of the log is "
                    "read until it is longer"
                )
        # A log that is gone stays where it was; planning says what is lost.
        ends = {key: max(offset, ends.get(key, offset)) for key, offset in begin.next.items()} | {
            key: end for key, end in ends.items() if key not in begin.next
        }
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(logs, begin.next, ends, limit)
        if all(begin.next.get(key, 0) == end for key, end in ends.items()):
            return start
        self._given_at = time.monotonic()
        self._given += 1
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
        """Reads no further than what there is now.

        Raises:
            ArchiveError: the archive is not there.
        """
        self._target = self._ends(read_positions.logs(self._archive(), self._options))

    def reportLatestOffset(self) -> dict[str, Any]:
        """Returns how far the archive is, for the query's progress."""
        archive = self._archive()
        return Offsets(archive.id, self._ends(read_positions.logs(archive, self._options))).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        """Returns a task for each part of each log.

        Raises:
            OffsetsExpired: not all of these offsets are there, and `failOnDataLoss` is true.
            ArchiveError: they are of another archive, or no offsets.
        """
        archive = self._archive()
        begin, until = Offsets.parse(start, archive.id), Offsets.parse(end, archive.id)
        if start == end:
            return []
        # What Spark gives as the begin of the first batch it has asked for anew; only the end is as it was.
        first = until.next if until.is_first else begin.next if until.begun is None else until.begun
        return partitions.plan(archive, self._options, first, until.next, until.skip, {})

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Arrow record batches of a task; raises what `Rows.batches` does."""
        return self._rows.batches(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Lets the archive give up what was read, where the query has a `groupId`.

        Raises:
            ArchiveError: `end` is of another archive, or no offset.
            StorageError: the cursor cannot be written.
        """
        if self._options.group_id is not None:
            archive = self._archive()
            self._commit(archive, self._options.group_id, Offsets.parse(end, archive.id).next)

    def _look(self, archive: Archive) -> None:
        """Warns of topics that are not there, once; more topics may come later."""
        if not self._looked:
            read_positions.look_for_topics(archive, self._options)
            self._looked = True

    def _hold(self, archive: Archive, begins: Mapping[str, int]) -> None:
        """Has the archive keep what a new query begins with; its first commit comes with its second batch."""
        group = self._options.group_id
        if group is None:
            return
        known = archive.cursors.all().get(group)
        if known is not None:
            # A first batch that is done again begins where it did, though "latest" is later now: what is held stays.
            begins = {key: min(offset, begins.get(key, offset)) for key, offset in known.offsets.items()}
        self._commit(archive, group, begins)

    def _commit(self, archive: Archive, group: str, offsets: Mapping[str, int]) -> None:
        archive.cursors.commit(group, offsets, partitions=TopicSelection.of(self._options).partitions)

    def _archive(self) -> Archive:
        # Opened each time: it holds nothing that is worth keeping, and this object travels to the tasks.
        return Archive(self._options.archive)

    def _ends(self, logs: Mapping[str, Log]) -> dict[str, int]:
        """Returns the offset after the last published row of each log, or what availableNow has set instead."""
        found = {key: log.bounds()[1] for key, log in logs.items()}
        if self._target is None:
            return found
        return {key: min(found[key], target) for key, target in self._target.items() if key in found}

    def _limited(
        self, logs: Mapping[str, Log], begin: Mapping[str, int], ends: Mapping[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        """Ends that keep the limits of Spark and of the options."""
        begins = {key: begin.get(key, 0) for key in ends}
        new = sum(ends[key] - begins[key] for key in ends)
        least = limit.min_rows if isinstance(limit, ReadMinRows) else self._options.min_offsets
        waited = time.monotonic() - self._given_at
        # With availableNow nothing more comes that could be waited for.
        if least is not None and new < least and self._target is None and waited < self._options.max_delay_seconds:
            return begins
        turn = sum(begins.values())
        limited = dict(ends)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_offsets
        if rows is not None:
            shares = share({key: ends[key] - begins[key] for key in ends}, rows, turn)
            limited = {key: begins[key] + shares[key] for key in ends}
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_bytes
        return limited if size is None else _within(logs, begins, limited, size, self._given)


def _within(
    logs: Mapping[str, Log], begins: Mapping[str, int], ends: Mapping[str, int], size: int, turn: int
) -> dict[str, int]:
    """Ends with messages of at most so many bytes, or with a single one that is longer.

    The next message of the log whose turn it is goes first: it may be longer than what this log's share will ever be.
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
