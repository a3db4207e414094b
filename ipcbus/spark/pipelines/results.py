"""Results as directories of Parquet, each replaced as a whole."""

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
        pipeline: whose results.
        tables: what they are computed from; they and the results are held in memory or on Spark's disks meanwhile.
        out: where.

    Returns:
        The directories by name of the result.
    """
    kept = {name: table.persist() for name, table in tables.items()}
    results = {name: result.persist() for name, result in pipeline.results(kept).items()}
    try:
        return {name: replace(result, out / name) for name, result in results.items()}
    finally:
        for table in (*results.values(), *kept.values()):
            table.unpersist()


def replace(result: DataFrame, path: Path) -> Path:
    """Writes a result beside what is there, and then puts it in its place."""
    return swap(path, lambda new: result.write.mode("overwrite").parquet(new))


def swap(path: Path, write: Callable[[str], None]) -> Path:
    """Has a directory written beside the one that is there, and then puts it in its place.

    A write that fails or is killed leaves what was there. Only between two renames is there nothing under the name;
    who is killed just then has left both under other names, and the next one begins by putting the old one back.

    Args:
        path: the directory; its name with `_new_` or `_old_` before it is taken too.
        write: is given where to write.

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
