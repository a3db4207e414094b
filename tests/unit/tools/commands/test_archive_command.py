from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from click.testing import CliRunner

from ipcbus.archive import Archive, Limits, json_files
from ipcbus.archive.archive_layout import BATCH_WAIT
from ipcbus_tools import json_schemas
from ipcbus_tools.cli import cli
from ipcbus_tools.render import archive_output
from tests.kit.archives import add, made

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

T0 = 1_700_000_000_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An archive of two logs, with a cursor that is behind and one that is damaged."""
    archive = Archive.create(tmp_path / "traffic")
    with archive.writer("feed", limits=Limits(segment_bytes=4096, retain_bytes=0)) as writer:
        for number in range(10):
            add(writer, [b"x" * 100] * 10, topic=f"quotes.{number % 2}", time_ns=T0 + number)
        rows, data = made([b""], type=4, topic=writer.topic("quotes.0"), session=writer.session("s"), time_ns=T0 + 50)
        rows["numbers"] = 7
        writer.append(rows, data)
        writer.retain(T0)
    archive.writer("1host").close()
    archive.cursors.commit("spark", {"feed/0": 3, "gone/7": 1})
    (archive.path / "consumers" / "bad.json").write_text("[1")
    return archive.path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["archive", *arguments], terminal_width=200)


def facts(name: str, *arguments: str, exit_code: int = 0) -> Any:  # noqa: ANN401 - JSON
    result = run(name, *arguments, "--json")
    assert result.exit_code == exit_code, result.output
    found = json.loads(result.stdout)
    jsonschema.validate(found, json_schemas.schema(f"archive-{name}"), jsonschema.Draft202012Validator)
    return found


def test_info_for_programs(path: Path) -> None:
    found = facts("info", str(path), "--count")
    log, empty = found["logs"]
    assert (log["key"], log["next_offset"], log["writer"]) == ("feed/0", 101, "")
    assert log["first_offset"] == log["segments"][0]["base"] > 3
    assert log["rows"] == 101 - log["first_offset"] == sum(each["rows"] for each in log["segments"])
    assert (log["losses"], log["lost"], log["holes"], log["damaged"]) == (1, 7, 0, 0)
    assert log["last_receive_ns"] == T0 + 50
    assert sum(each["messages"] for each in log["topics"]) == log["rows"] - 1
    assert [each["lost"] for each in log["topics"]] == [7, 0]
    assert (empty["rows"], empty["first_receive_ns"], empty["segments"]) == (0, None, [])
    bad, good = found["cursors"]
    assert (bad["group"], bad["committed_ns"], bad["logs"]) == ("bad", None, [])
    assert "JSON" in bad["reason"]
    assert good["logs"] == [
        {"log": "feed/0", "offset": 3, "lag": 98, "missed": log["first_offset"] - 3},
        {"log": "gone/7", "offset": 1, "lag": None, "missed": None},
    ]
    assert facts("info", str(path))["logs"][0]["topics"][0]["messages"] is None


def test_info_for_people(path: Path) -> None:
    shown = run("info", str(path), "--count").stdout
    for text in ("feed/0", "1host/1", "quotes.1", "LBT-IPC:1:1", "spark", "the log is gone", "is not the JSON object"):
        assert text in shown
    with Archive(path).writer("feed"):
        assert "pid" in run("info", str(path)).stdout


def test_info_shows_the_wait_in_batches_by_the_newest_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [log["batch_wait"] for log in facts("info", str(path))["logs"]] == [None, None]
    with Archive(path).writer("feed") as writer:
        for wait_ns in (96_000_000, 1600, 32_000_000):
            rows, data = made([b"x"] * 2, topic=writer.topic("quotes.0"), session=writer.session("s"), time_ns=T0 + 60)
            rows["numbers"][0] = BATCH_WAIT | wait_ns // 16
            writer.append(rows, data)
    found = facts("info", str(path))["logs"][0]["batch_wait"]
    assert found == {"rows": found["rows"], "messages": 3, "mean_ns": 128_001_600 / 3, "longest_ns": 96_000_000}
    assert "42.7 ms" in run("info", str(path)).stdout
    monkeypatch.setattr(archive_output, "_NEWEST", 4)
    found = facts("info", str(path))["logs"][0]["batch_wait"]
    assert found == {"rows": 4, "messages": 2, "mean_ns": 16_000_800.0, "longest_ns": 32_000_000}


def test_verify_and_repair(path: Path) -> None:
    (path / "consumers" / "bad.json").unlink()
    assert facts("verify", str(path))["findings"] == []
    assert run("verify", str(path)).stdout.endswith(": nothing is damaged\n")
    assert facts("repair", str(path))["repairs"] == []
    damaged = sorted((path / "feed" / "0").glob("*.dat"))[0]
    damaged.write_bytes(b"y" + damaged.read_bytes()[1:])
    (finding,) = facts("verify", str(path), exit_code=1)["findings"]
    assert finding["file"] == f"feed/0/{damaged.name}"
    assert finding["end"] - finding["first"] == 10
    result = run("verify", str(path))
    assert result.exit_code == 1
    assert f"{finding['first']}-{finding['end'] - 1}" in result.stdout
    with Archive(path).writer("feed"):
        assert run("verify", str(path)).stdout.endswith("repairs them, when no recorder writes the archive\n")
        refused = run("repair", str(path))
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "is written by pid" in refused.stderr
    assert run("repair", str(path)).stdout.endswith("1 repair, 10 rows lost\n")
    assert facts("verify", str(path))["findings"] == []


@pytest.mark.parametrize("damage", ["empty", "cut", "two bits", "another format", "a copied log"])
def test_verify_promises_no_repair_that_is_refused(path: Path, damage: str) -> None:
    identity = path / "archive.json"
    data = identity.read_bytes()
    if damage == "a copied log":
        shutil.copytree(path / "feed" / "0", path / "other" / "0")
    else:
        spoiled = {
            **{"empty": b"", "cut": data[:60], "two bits": bytes([data[0] ^ 1, data[1] ^ 1]) + data[2:]},
            "another format": json_files.pack({**json_files.unpack(data), "format": 99}),
        }
        identity.write_bytes(spoiled[damage])
    shown = run("verify", str(path))
    assert shown.exit_code == 1
    assert "findings; 'ipcbus archive repair' cannot repair this archive: " in shown.stdout
    refused = run("repair", str(path))
    assert (refused.exit_code, refused.stdout) == (1, "")
    reason = refused.stderr.removeprefix("error: ").strip()
    assert shown.stdout.strip().endswith(reason)
    assert "or run 'ipcbus archive repair'" not in reason


def test_verify_promises_the_repair_of_one_flipped_bit(path: Path) -> None:
    identity = path / "archive.json"
    data = identity.read_bytes()
    identity.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    assert run("verify", str(path)).stdout.endswith("findings; 'ipcbus archive repair' repairs them\n")
    assert run("repair", str(path)).exit_code == 0
    assert identity.read_bytes() == data


@pytest.mark.parametrize("name", ["info", "verify", "repair"])
def test_what_is_no_archive_is_refused(tmp_path: Path, name: str) -> None:
    for path in (tmp_path, tmp_path / "none"):
        result = run(name, str(path))
        assert (result.exit_code, result.stdout) == (1, "")
        assert "is not an archive" in result.stderr
