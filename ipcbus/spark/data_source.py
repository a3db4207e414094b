"""The data source `ipcbus`, which `spark.read.format("ipcbus")` and `spark.readStream.format("ipcbus")` use.

Spark imports this module whenever it looks for data sources, so slow imports stand in the functions that need them.
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
    """Recorded messages as rows, and rows as messages.

    Options and columns: docs/how-to/spark.md, docs/how-to/spark-sink.md.
    """

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "ipcbus"

    def schema(self) -> StructType:
        """Returns the columns that a reader gets by default.

        Raises:
            ConfigError: an option is wrong.
        """
        from ipcbus.spark.read_options import ReadOptions
        from ipcbus.spark.row_schema import schema

        return schema(ReadOptions.of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns a reader of what an archive holds now.

        Raises:
            ConfigError: an option or a column is wrong.
            ArchiveError: the archive cannot be read.
        """
        from ipcbus.spark.batch_reader import reader
        from ipcbus.spark.read_options import ReadOptions

        return reader(ReadOptions.of(self.options, "batch"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns a reader of what an archive holds and of what is recorded later.

        Raises:
            ConfigError: an option or a column is wrong.
            ArchiveError: the archive cannot be read.
        """
        from ipcbus.spark.read_options import ReadOptions
        from ipcbus.spark.stream_reader import StreamReader

        return StreamReader(ReadOptions.of(self.options, "stream"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns a writer that publishes the rows of a frame.

        Raises:
            ConfigError: an option, a column or the mode is wrong.
        """
        from ipcbus.spark.sink.sink_writer import BatchWriter

        return BatchWriter(schema, overwrite, self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Returns a writer that publishes the rows of each micro-batch.

        Raises:
            ConfigError: an option or a column is wrong.
        """
        from ipcbus.spark.sink.sink_writer import StreamWriter

        return StreamWriter(schema, overwrite, self.options)
