"""What Spark starts as the parent of its Python workers: it has loaded what they need before it forks them.

Set `spark.python.daemon.module` to `ipcbus.spark.daemon`; `ipcbus.spark.session` does. A worker that Spark ended early,
as `limit` does, then costs half the time to replace.
"""

import numpy  # noqa: F401
import pyarrow  # noqa: F401
from pyspark.daemon import manager

import ipcbus.archive.arrow
import ipcbus.spark.reader
import ipcbus.spark.stream  # noqa: F401

if __name__ == "__main__":
    manager()
