"""Drives the data source as Spark does, without one: everything goes through pickle and JSON on its way."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from ipcbus.spark.data_source import IpcbusDataSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import Filter, InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit

    from ipcbus.spark.batch_reader import Reader
    from ipcbus.spark.partitions import Part
    from ipcbus.spark.stream_reader import StreamReader

Row = dict[str, Any]


def sent(thing: Any) -> Any:  # noqa: ANN401
    """What arrives of something that is sent to another process."""
    return pickle.loads(pickle.dumps(thing))


def written(offset: dict[str, Any]) -> str:
    """An offset as the offset log has it."""
    return json.dumps(offset)


def source(options: dict[str, str]) -> IpcbusDataSource:
    """The data source with options as a user gives them."""
    return IpcbusDataSource(CaseInsensitiveDict(options))


class Batch:
    """A planned batch read."""

    def __init__(
        self, options: dict[str, str], schema: StructType | None = None, filters: Sequence[Filter] = ()
    ) -> None:
        """Plans it; filters are what Spark hands over."""
        made = source(options)
        self.schema = StructType.fromJson((schema or made.schema()).jsonValue())
        self.reader: Reader = sent(made).reader(self.schema)
        self.left = list(self.reader.pushFilters(list(filters))) if filters else []
        self.partitions = self.reader.partitions()

    def batches(self) -> list[Any]:
        """All record batches."""
        return [batch for part in self.partitions for batch in task(self.reader, part, self.schema)]

    def rows(self) -> list[Row]:
        """All rows."""
        return [row for batch in self.batches() for row in batch.to_pylist()]


def task(reader: Any, part: InputPartition, schema: StructType) -> list[Any]:  # noqa: ANN401
    """The record batches of one task; checked as Spark checks them."""
    found = list(sent(reader).read(sent(part)))
    wanted = to_arrow_schema(schema, timezone="UTC")
    for batch in found:
        batch.validate(full=True)
        assert batch.schema.equals(wanted)
        assert batch.num_rows
    return found


class Query:
    """A streaming query: what its checkpoint holds outlives `restart`."""

    def __init__(self, options: dict[str, str], *, available_now: bool = False) -> None:
        """Starts it."""
        self.log: list[str] = []
        self.committed = 0
        self.start(options, available_now=available_now)

    def start(self, options: dict[str, str], *, available_now: bool = False) -> None:
        """Starts it (again), as after a crash or a stop."""
        made = source(options)
        self.schema = made.schema()
        self.reader = cast("StreamReader", made.streamReader(self.schema))
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def begin_of(self, batch: int) -> dict[str, Any]:
        """The offset at which a batch begins; of the first one it is asked for anew each time, as Spark does."""
        offset = written(self.reader.initialOffset()) if batch == 0 else self.log[batch - 1]
        return dict(json.loads(offset))

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Writes the next batch into the offset log; says whether there is one; the first one may have no rows."""
        begin = self.begin_of(len(self.log))
        chosen = self.reader.getDefaultReadLimit() if limit is None else limit
        end = written(self.reader.latestOffset(begin, chosen))
        if end == written(begin) and self.log:
            return False  # there is a first batch even so
        self.log.append(end)
        if self.committed:
            self.reader.commit(json.loads(self.log[self.committed - 1]))
        return True

    def parts(self, batch: int) -> list[Part]:
        """The tasks of a batch."""
        return self.reader.partitions(self.begin_of(batch), json.loads(self.log[batch]))

    def run(self, batch: int) -> list[Row]:
        """The rows of a batch that is in the offset log."""
        found = [
            row
            for part in self.parts(batch)
            for each in task(self.reader, part, self.schema)
            for row in each.to_pylist()
        ]
        self.committed = max(self.committed, batch + 1)
        return found

    def next(self, limit: ReadLimit | None = None) -> list[Row] | None:
        """Plans and runs one batch; None when there is nothing for one."""
        return self.run(len(self.log) - 1) if self.plan(limit) else None

    def drain(self, limit: ReadLimit | None = None) -> list[list[Row]]:
        """Batches until there is nothing more."""
        found = []
        while (rows := self.next(limit)) is not None:
            found.append(rows)
        return found


def everything() -> ReadAllAvailable:
    """The limit of Trigger.Once."""
    return ReadAllAvailable()
