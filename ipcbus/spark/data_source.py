"""The data source `ipcbus`: what `spark.read.format("ipcbus")` and `spark.readStream.format("ipcbus")` lead to.

Spark imports this module to look for data sources whatever format it was asked for, so what costs time is imported
where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class IpcbusDataSource(DataSource):
    """Recorded traffic as rows, and rows as traffic. Options and columns: docs/how-to/spark.md, spark-sink.md."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "ipcbus"

    def schema(self) -> StructType:
        """Returns the columns of a reader who does not name them.

        Raises:
            ConfigError: an option is wrong.
        """
        from ipcbus.spark.read_options import ReadOptions
        from ipcbus.spark.row_schema import schema

        return schema(ReadOptions.of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads what an archive holds now.

        Raises:
            ConfigError: an option or a column is wrong.
            ArchiveError: the archive cannot be read.
        """
        from ipcbus.spark.batch_reader import reader
        from ipcbus.spark.read_options import ReadOptions

        return reader(ReadOptions.of(self.options, "batch"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Reads what an archive holds and what will come into it.

        Raises:
            ConfigError: an option or a column is wrong.
            ArchiveError: the archive cannot be read.
        """
        from ipcbus.spark.read_options import ReadOptions
        from ipcbus.spark.stream_reader import StreamReader

        return StreamReader(ReadOptions.of(self.options, "stream"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Publishes the rows of a frame.

        Raises:
            ConfigError: an option, a column or the mode is wrong.
        """
        from ipcbus.spark.sink.sink_writer import BatchWriter

        return BatchWriter(schema, overwrite, self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Publishes the rows of each micro-batch.

        Raises:
            ConfigError: an option or a column is wrong.
        """
        from ipcbus.spark.sink.sink_writer import StreamWriter

        return StreamWriter(schema, overwrite, self.options)
