"""Where reading begins and ends: the offsets of each log that the options stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipcbus.errors import ArchiveMissing, ConfigError, OffsetsExpired
from ipcbus.spark import partitions
from ipcbus.spark.offsets import Offsets, Skips
from ipcbus.spark.option_parsers import EARLIEST, LATEST
from ipcbus.spark.topic_selection import TopicSelection

if TYPE_CHECKING:
    from ipcbus.archive.archive import Archive
    from ipcbus.archive.log import Log
    from ipcbus.spark.option_parsers import PerTopic, Position
    from ipcbus.spark.read_options import ReadOptions

_MS = 1_000_000


def logs(archive: Archive, options: ReadOptions) -> dict[str, Log]:
    """Returns the logs that may hold selected topics, by key.

    Raises:
        ArchiveDamaged: a log cannot be read, and `failOnDataLoss` is true; else a warning says so.
    """
    subscription = TopicSelection.of(options)
    found = {}
    for log in archive.logs():
        if not subscription.wants_log(log.partition):
            continue
        damage = partitions.damage_of(log, options)
        if damage is None:
            found[log.key] = log
        else:
            partitions.warn_once(f"log {log.key} is left out as a whole, as failOnDataLoss is false: {damage}")
    return found


def check_topics(archive: Archive, options: ReadOptions) -> None:
    """Warns once of topics that the options name and the archive does not have.

    Raises:
        ArchiveMissing: there are such topics, and `failOnMissingTopic` is true.
        ArchiveDamaged: a log cannot be read, and `failOnDataLoss` is true.
    """
    there = {log.partition: set(log.topics().values()) for log in logs(archive, options).values()}
    unknown = TopicSelection.of(options).unknown(there)
    if not unknown:
        return
    text = f"archive {archive.path}: {'; '.join(unknown)}"
    if options.fail_on_missing_topic:
        raise ArchiveMissing(f"{text}; correct the name, or leave failOnMissingTopic false and wait for the topic")
    partitions.warn_once(f"{text}; the query reads no row of it")


def starts(archive: Archive, options: ReadOptions) -> tuple[dict[str, int], Skips]:
    """Returns the offset at which each log begins, and the topics that begin later.

    Raises:
        ConfigError: the options name a partition or topic that is not read, or a time after the last row.
        OffsetsExpired: an offset is beyond the end of its log, and `failOnDataLoss` is true.
        ArchiveMissing: offsets of a checkpoint are of another archive, or of a log that no longer exists while
            `failOnDataLoss` is true.
        ArchiveDamaged: a log cannot be read, and `failOnDataLoss` is true.
    """
    found = _resolve(archive, options, options.starting, EARLIEST)
    begins, skips = {}, {}
    for key, (default, topics) in found.items():
        begin = min([*topics.values(), *([default] if default is not None else [])])
        begins[key] = begin
        skips[key] = {topic: offset for topic, offset in topics.items() if offset > begin}
    if options.starting.checkpoint is not None:
        skips = Offsets.parse(options.starting.checkpoint, archive.id).skip
    return begins, {key: topics for key, topics in skips.items() if topics}


def ends(archive: Archive, options: ReadOptions) -> tuple[dict[str, int], Skips]:
    """Returns the offset at which each log ends, exclusive, and the topics that end earlier; raises as `starts`."""
    ends, stops = {}, {}
    for key, (default, topics) in _resolve(archive, options, options.ending, LATEST).items():
        end = max([*topics.values(), *([default] if default is not None else [])])
        ends[key] = end
        stops[key] = {topic: offset for topic, offset in topics.items() if offset < end}
    return ends, {key: topics for key, topics in stops.items() if topics}


def _resolve(
    archive: Archive, options: ReadOptions, position: Position, unnamed: int
) -> dict[str, tuple[int | None, dict[str, int]]]:
    """Returns, for each log, the offset for topics that are not named (None: all are), and those of named topics."""
    found = logs(archive, options)
    subscription = TopicSelection.of(options)
    by_topic = position.offsets if position.offsets is not None else position.times_ms
    if by_topic is not None:
        _check_named(by_topic, subscription, archive)
        return {
            key: _of_topics(log, by_topic, subscription.known(log.partition), position, unnamed, options)
            for key, log in found.items()
        }
    if position.checkpoint is not None:
        known = Offsets.parse(position.checkpoint, archive.id).next
        gone = known.keys() - {log.key for log in archive.logs()}
        if gone:
            text = f"offsets name log {min(gone)}, which archive {archive.path} does not have"
            if options.fail_on_data_loss:
                raise ArchiveMissing(f"{text}; leave it out of the offsets, or set failOnDataLoss to false")
            partitions.warn_once(f"{text}; it is left out, as failOnDataLoss is false")
        return {key: (_offset(log, known.get(key, unnamed), options), {}) for key, log in found.items()}
    if position.time_ms is not None:
        return {key: (_at(log, position.time_ms, position), {}) for key, log in found.items()}
    everywhere = position.everywhere if position.everywhere is not None else unnamed
    return {key: (_offset(log, everywhere, options), {}) for key, log in found.items()}


def _of_topics(
    log: Log,
    by_topic: PerTopic,
    known: frozenset[str] | None,
    position: Position,
    unnamed: int,
    options: ReadOptions,
) -> tuple[int | None, dict[str, int]]:
    values = {topic: of[log.partition] for topic, of in by_topic.items() if log.partition in of}
    if position.times_ms is not None:
        named = {topic: _at(log, value, position) for topic, value in values.items()}
    else:
        named = {topic: _offset(log, value, options) for topic, value in values.items()}
    all_named = known is not None and known <= named.keys()
    return (None if all_named and named else _offset(log, unnamed, options)), named


def _offset(log: Log, value: int, options: ReadOptions) -> int:
    first, end = log.bounds()
    if value > end:
        text = f"offset {value} of log {log.key} of {log.folder.parents[1]} was requested, but the log ends at {end}"
        if options.fail_on_data_loss:
            raise OffsetsExpired(f"{text}; give an offset up to {end}, or latest, or set failOnDataLoss to false")
        partitions.warn_once(f"{text}; reading uses {end} instead, as failOnDataLoss is false")
        return end
    return {EARLIEST: first, LATEST: end}.get(value, value)


def _at(log: Log, time_ms: int, position: Position) -> int:
    """Returns the offset of the first row received at a time or later."""
    found, end = log.offset_at(time_ms * _MS), log.bounds()[1]
    if found >= end and not position.or_latest:
        raise ConfigError(
            f"data source ipcbus: log {log.key} has no row received at {time_ms} ms since the epoch or later; give "
            "an earlier time, or option startingOffsetsByTimestampStrategy latest"
        )
    return min(found, end)


def _check_named(by_topic: PerTopic, subscription: TopicSelection, archive: Archive) -> None:
    """Checks that the query reads every topic that the JSON names."""
    partitions = {log.partition for log in archive.logs() if subscription.wants_log(log.partition)}
    for topic, of in by_topic.items():
        for partition in of:
            if partition not in partitions:
                raise ConfigError(
                    f"data source ipcbus: offsets name partition {partition} of topic {topic!r}, but archive "
                    f"{archive.path} has partitions {sorted(partitions)} to read; name only these"
                )
            wants = subscription.wants(partition)
            if wants is not None and not wants(topic):
                raise ConfigError(
                    f"data source ipcbus: offsets name topic {topic!r} of partition {partition}, which the query "
                    "does not read; add it to subscribe, subscribePattern or assign, or leave its offsets out"
                )
