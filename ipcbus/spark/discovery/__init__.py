"""The module in which Spark looks for data sources: installed as the top-level package `pyspark_ipcbus`."""

from ipcbus.spark.data_source import IpcbusDataSource as DefaultSource

__all__ = ["DefaultSource"]
