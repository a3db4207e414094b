from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from ipcbus.archive import Archive
from ipcbus_tools import json_schemas
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
    jsonschema.validate(found, json_schemas.schema("archive-export"), jsonschema.Draft202012Validator)
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
        (["--topic", "(", "--pattern"], 2, "error: --topic '(' is not a regular expression"),
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


def test_damage_is_left_out_and_listed(path: Path, tmp_path: Path) -> None:
    with Archive(path).writer("feed") as writer:
        append(writer, counted(5, topic="quotes.c"))
    data = path / "feed" / "0" / f"{0:020d}.dat"
    data.write_bytes(bytes(data.stat().st_size - 3) + b"bad")
    strict = run(path, "--to", tmp_path / "strict.parquet")
    assert strict.exit_code == 1
    assert "--skip-damaged exports all other rows" in strict.output
    assert not (tmp_path / "strict.parquet").exists()
    result = run(path, "--to", tmp_path / "out.parquet", "--skip-damaged")
    assert result.exit_code == 1
    assert "0-6" in result.output
    assert "checksum of its messages" in result.output
    result = run(path, "--to", tmp_path / "again.parquet", "--skip-damaged", "--json")
    found = json.loads(result.stdout)
    jsonschema.validate(found, json_schemas.schema("archive-export"), jsonschema.Draft202012Validator)
    assert [(each["log"], each["first"], each["end"], each["damaged"]) for each in found["missing"]] == [
        ("feed/0", 0, 7, True)
    ]
    assert [each["rows"] for each in found["files"]] == [5]
    assert result.exit_code == 1


def test_a_topic_that_the_archive_does_not_have_is_named(path: Path, tmp_path: Path) -> None:
    for number, options in enumerate((["--topic", "quotes.x"], ["--topic", "quotes[.]x", "--pattern"])):
        result = run(path, "--to", tmp_path / f"{number}.parquet", *options)
        assert result.exit_code == 0, result.output
        assert "of the archive, but 'quotes." in result.stderr
    assert "note:" not in run(path, "--to", tmp_path / "all.parquet", "--topic", "quotes.a").stderr


def test_a_pattern_without_a_topic_is_refused(tmp_path: Path) -> None:
    result = run(tmp_path, "--to", tmp_path / "out", "--pattern")
    assert result.exit_code == 2
    assert "--pattern needs --topic" in result.output
