"""Results as directories of Parquet files, each replaced as a whole."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from ipcbus.embedding import Disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

    from ipcbus.spark.pipelines.pipeline import Pipeline, Tables

_NEW: Final = "_new"
_OLD: Final = "_old"


def write_results(pipeline: Pipeline, tables: Tables, out: Path) -> dict[str, Path]:
    """Writes each result of a pipeline to a directory of its name.

    Args:
        pipeline: the pipeline.
        tables: its tables; Spark keeps them and the results in memory or on its disks meanwhile.
        out: the directory of these directories.

    Returns:
        Name of the result -> its directory.
    """
    kept = {name: table.persist() for name, table in tables.items()}
    results = {name: result.persist() for name, result in pipeline.results(kept).items()}
    try:
        return {name: replace(result, out / name) for name, result in results.items()}
    finally:
        for table in (*results.values(), *kept.values()):
            table.unpersist()


def replace(result: DataFrame, path: Path) -> Path:
    """Writes a result beside the present one, and then replaces that one."""
    return swap(path, lambda new: result.write.mode("overwrite").parquet(new))


def swap(path: Path, write: Callable[[str], None]) -> Path:
    """Writes a directory beside the present one, and then replaces that one.

    A write that fails or is killed leaves the present directory. Only between two renames does the name not exist;
    after a kill at that moment both directories have other names, and the next call begins by putting the old one back.

    Args:
        path: the directory; the names with the prefixes `_new_` and `_old_` are used too.
        write: called with the path to write to.

    Returns:
        `path`.
    """
    files = Disk()
    files.make_dir(path.parent)
    new, old = (path.with_name(f"{kind}_{path.name}") for kind in (_NEW, _OLD))
    if old.exists() and not path.exists():
        files.rename(old, path)
    write(str(new))
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        files.rename(path, old)
    files.rename(new, path)
    files.sync_dir(path.parent)
    shutil.rmtree(old, ignore_errors=True)
    return path
