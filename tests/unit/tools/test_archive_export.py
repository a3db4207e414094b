from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from ipcbus.archive import Archive
from ipcbus_tools import schema
from ipcbus_tools.cli import cli
from tests.kit.records import Record, append, counted

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    archive = Archive.create(tmp_path / "traffic")
    with archive.writer("feed") as writer:
        append(writer, [*counted(3, topic="quotes.a"), *counted(2, topic="quotes.b"), Record(type=4), *counted(1)])
    return archive.path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["archive", "export", *map(str, arguments)], terminal_width=200)


def topics(path: Path) -> list[str]:
    return [str(topic) for topic in pq.read_table(path, columns=["topic"]).column(0).to_pylist()]


def test_for_people(path: Path, tmp_path: Path) -> None:
    result = run(path, "--to", tmp_path / "out.parquet")
    assert result.exit_code == 0, result.output
    assert "out.parquet" in result.output
    assert "6 rows" in result.output
    assert len(topics(tmp_path / "out.parquet")) == 6


def test_for_programs(path: Path, tmp_path: Path) -> None:
    result = run(path, "--to", tmp_path / "out", "--events", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    jsonschema.validate(found, schema.schema("archive-export"), jsonschema.Draft202012Validator)
    (file,) = found["files"]
    assert file == {
        "path": str(tmp_path / "out" / "feed-0-00000.parquet"),
        "rows": 7,
        "bytes": (tmp_path / "out" / "feed-0-00000.parquet").stat().st_size,
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--topic", "quotes.a", "--topic", "t"], ["quotes.a"] * 3 + ["t"]),
        (["--topic", r"quotes\..", "--pattern"], ["quotes.a"] * 3 + ["quotes.b"] * 2),
        (["--topic", "quotes", "--pattern"], []),
    ],
)
def test_topics(path: Path, tmp_path: Path, options: list[str], expected: list[str]) -> None:
    assert run(path, "--to", tmp_path / "out.parquet", *options).exit_code == 0
    assert topics(tmp_path / "out.parquet") == expected


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--topic", "(", "--pattern"], 2, "error: --topic '(' is no regular expression"),
        (["--format", "arrow"], 2, "cannot be arrow"),
    ],
)
def test_misuse(path: Path, tmp_path: Path, arguments: list[str], code: int, says: str) -> None:
    result = run(path, "--to", tmp_path / "out.parquet", *arguments)
    assert result.exit_code == code
    assert says in result.output


def test_no_archive(tmp_path: Path) -> None:
    result = run(tmp_path, "--to", tmp_path / "out")
    assert result.exit_code == 1
    assert result.output.startswith("error: ")
