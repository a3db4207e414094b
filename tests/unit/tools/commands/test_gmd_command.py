from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from click.testing import CliRunner

from ipcbus.gmd.acknowledgement_file import FileReceiverArea
from ipcbus.gmd.area_folders import area_folder
from ipcbus.gmd.area_identity import AreaIdentity
from ipcbus.gmd.delivery_modes import SOME
from ipcbus.gmd.file_area import FileArea
from ipcbus.storage.files import Disk
from ipcbus_tools import json_schemas
from ipcbus_tools.cli import cli

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

SENDER = AreaIdentity("gateway", "orders", "default", 0xABCDEF)


@pytest.fixture
def area(tmp_path: Path) -> Path:
    """A sender's area with three pending messages."""
    folder = area_folder(tmp_path, "gateway", "orders", "source")
    opened = FileArea.open(Disk(), folder, SENDER)
    for number in range(1, 5):
        opened.save(SOME, 2_000_000_000, 1_700_000_000_000_000_000 + number, b"head", b"value" * number)
    opened.release(2, 2)
    opened.close()
    return folder


def run(*arguments: str, asked: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["gmd", *arguments], terminal_width=200, input=asked)


def facts(name: str, *arguments: str, exit_code: int = 0) -> Any:  # noqa: ANN401 - JSON
    result = run(name, *arguments, "--json")
    assert result.exit_code == exit_code, result.output
    found = json.loads(result.stdout)
    jsonschema.validate(found, json_schemas.schema(f"gmd-{name}"), jsonschema.Draft202012Validator)
    return found


def spoil(area: Path) -> None:
    """Flips a bit in the second message."""
    path = next(area.glob("*.gmd"))
    data = bytearray(path.read_bytes())
    data[data.index(b"valuevaluevalue")] ^= 1
    path.write_bytes(data)


def test_areas_are_listed(area: Path, tmp_path: Path) -> None:
    receiver = area_folder(tmp_path, "settlement", "orders", "receiver")
    acknowledged = FileReceiverArea.open(Disk(), receiver, AreaIdentity("settlement", "orders", "default"))
    acknowledged.record("gateway", 0xABCDEF, 5, [(7, 9)])
    found = facts("list", "--directory", str(tmp_path))
    one, other = found["areas"]
    assert (one["path"], one["role"], one["name"], one["topic"], one["domain"]) == (
        *(str(area), "source", "gateway", "orders", "default"),
    )
    assert (one["pending"], one["last_number"], one["oldest_ns"]) == (3, 4, 1_700_000_000_000_000_001)
    assert (one["incarnation"], one["in_use_by"], one["damaged"]) == ("0000000000abcdef", "", 0)
    assert "pid " in other["in_use_by"]
    assert other["streams"] == [
        {"sender": "gateway", "incarnation": "0000000000abcdef", "floor": 5, "ranges": [{"first": 7, "last": 9}]}
    ]
    acknowledged.close()
    shown = run("list", "--directory", str(tmp_path)).output
    assert "gateway" in shown
    assert "settlement" in shown
    assert "there are no areas" in run("list", "--directory", str(tmp_path / "none")).output


def test_an_area_that_is_in_use_is_shown(area: Path) -> None:
    owner = FileArea.open(Disk(), area, SENDER)
    owner.save(SOME, 0, 5, b"", b"new")
    found = facts("show", str(area))
    assert [each["number"] for each in found["messages"]] == [1, 3, 4, 5]
    assert found["messages"][1] == {
        **{"number": 3, "mode": "some", "send_time_ns": 1_700_000_000_000_000_003, "timeout_ns": 2_000_000_000},
        **{"header_bytes": 4, "bytes": 15},
    }
    owner.close()
    shown = run("show", str(area)).output
    assert "15 bytes, 4 bytes of headers, timeout 2 s" in shown
    assert "0000000000abcdef" in shown


def test_damage_is_found_and_repaired(area: Path) -> None:
    assert facts("verify", str(area)) == {"path": str(area), "missing": [], "findings": []}
    spoil(area)
    found = facts("verify", str(area), exit_code=1)
    assert found["missing"] == [{"first": 3, "last": 3}]
    assert [each["length"] for each in found["findings"]] == [72]
    shown = run("verify", str(area))
    assert shown.exit_code == 1
    assert "missing messages: 3" in shown.output
    assert facts("repair", str(area)) == {
        **{"path": str(area), "repaired": 1, "pending": 2, "missing": [{"first": 3, "last": 3}]}
    }
    assert facts("verify", str(area))["missing"] == [{"first": 3, "last": 3}]
    assert "nothing is damaged" in run("verify", str(area)).output
    assert "0 damaged parts repaired, 2 pending messages kept" in run("repair", str(area)).output
    opened = FileArea.open(Disk(), area, SENDER)
    assert opened.recovered().damage == [(3, 3)]
    opened.close()


def test_an_area_is_removed_after_a_question(area: Path) -> None:
    refused = run("purge", str(area), asked="n\n")
    assert refused.exit_code == 1
    assert "and 3 pending messages?" in refused.output
    assert "was not removed" in refused.output
    owner = FileArea.open(Disk(), area, SENDER)
    locked = run("purge", str(area), "--yes")
    assert locked.exit_code == 1
    assert "in use by pid" in locked.output
    owner.close()
    assert facts("purge", str(area), "--yes")["pending"] == 3
    assert not list(area.glob("*.gmd"))
    opened = FileArea.open(Disk(), area, SENDER)
    assert opened.last_number == 0
    opened.close()


def test_a_missing_area_is_an_error(tmp_path: Path) -> None:
    for name in ("show", "verify", "repair", "purge"):
        result = run(name, str(tmp_path / "none"))
        assert result.exit_code == 1
        assert "there is no GMD area" in result.output
