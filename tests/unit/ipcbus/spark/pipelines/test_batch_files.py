"""Whose a directory of micro-batches is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import ConfigError
from ipcbus.spark.pipelines.batch_files import BatchFiles

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_of_one_stream(tmp_path: Path) -> None:
    parts = BatchFiles(tmp_path / "parts")
    for batch in (0, 0, 1):
        parts.claim("stream 1", batch, "sums")
    with pytest.raises(ConfigError, match=r"holds files of another stream \(stream 1, this one is stream 2\)"):
        parts.claim("stream 2", 0, "sums")


def test_a_checkpoint_that_has_come_further_is_of_other_results(tmp_path: Path) -> None:
    parts = BatchFiles(tmp_path / "parts")
    for _ in range(2):
        with pytest.raises(ConfigError, match="the checkpoint has reached micro-batch 1: .* its own checkpoint"):
            parts.claim("stream 1", 1, "sums")
    parts.claim("stream 2", 0, "sums")


def test_what_does_not_merge_is_refused(tmp_path: Path) -> None:
    parts = BatchFiles(tmp_path / "parts")
    parts.check("sums of 1 s")
    parts.claim("stream 1", 0, "sums of 1 s")
    parts.check("sums of 1 s")
    with pytest.raises(ConfigError, match="holds sums of 1 s, but this stream makes sums of 2 s; use the parameters"):
        parts.check("sums of 2 s")
