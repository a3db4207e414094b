"""The parent of Spark's Python workers: it imports what they need before it forks them.

`ipcbus.spark.session` sets `spark.python.daemon.module` to this module. A worker that Spark ended early, as `limit`
does, then costs half the time to replace.
"""

import numpy  # noqa: F401
import pyarrow  # noqa: F401
from pyspark.daemon import manager

import ipcbus.archive.arrow
import ipcbus.spark.batch_reader
import ipcbus.spark.stream_reader  # noqa: F401

if __name__ == "__main__":
    manager()
