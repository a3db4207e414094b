from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from click.testing import CliRunner

import ipcbus
from ipcbus.gmd import sender_notes
from ipcbus.gmd.acknowledgement_file import FileReceiverArea
from ipcbus.gmd.area_folders import area_folder
from ipcbus.gmd.area_identity import AreaIdentity
from ipcbus.gmd.area_repair import purge_area
from ipcbus.gmd.delivery_modes import SOME
from ipcbus.gmd.delivery_terms import timeout_note
from ipcbus.gmd.file_area import FileArea
from ipcbus.gmd.sender_notes import Note
from ipcbus.storage.files import Disk
from ipcbus_tools import json_schemas
from ipcbus_tools.cli import cli
from ipcbus_tools.gmd_agent import Agent, LeftArea
from ipcbus_tools.signals import SignalHandler, Stopped
from tests.kit.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

SENDER = AreaIdentity("gateway", "orders", "default", 0xABCDEF)


@pytest.fixture
def area(tmp_path: Path) -> Path:
    """A sender's area with three pending messages."""
    folder = area_folder(tmp_path, "gateway", "orders", "source")
    opened = FileArea.open(Disk(), folder, SENDER)
    opened.note(timeout_note(1, 2_000_000_000))
    for number in range(1, 5):
        opened.save(SOME, 0, 1_700_000_000_000_000_000 + number, b"head", b"value" * number)
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


def test_failed_messages_are_counted_once(area: Path) -> None:
    """Of three pending messages one failed for two names, one failed and is expected again, and one is acknowledged."""
    assert facts("show", str(area))["area"]["failed"] == 0
    opened = FileArea.open(Disk(), area, SENDER)
    notes = [Note(sender_notes.NAME, each, 0, (), f"name {each}") for each in (1, 2)]
    notes += [Note(sender_notes.EXPECT, each, 0, ((1, 4),)) for each in (1, 2)]
    notes += [Note(sender_notes.FAIL, 1, 518, ((1, 3),)), Note(sender_notes.FAIL, 2, 519, ((1, 1),))]
    notes += [Note(sender_notes.EXPECT, 1, 0, ((3, 3),)), Note(sender_notes.ACK, 1, 0, ((4, 4),))]
    for note in notes:
        opened.note(sender_notes.encode(note))
    opened.close()
    found = facts("show", str(area))["area"]
    assert (found["pending"], found["failed"]) == (3, 1)
    assert "failed       1" in run("show", str(area)).output


def test_the_receivers_of_an_area_are_shown_and_forgotten(area: Path) -> None:
    opened = FileArea.open(Disk(), area, SENDER)
    for each in (1, 2):
        opened.note(sender_notes.encode(Note(sender_notes.NAME, each, 0, (), f"name {each}")))
        opened.note(sender_notes.encode(Note(sender_notes.EXPECT, each, 0, ((1, 4),))))
    opened.note(sender_notes.encode(Note(sender_notes.ACK, 2, 0, ((1, 4),))))
    opened.close()
    assert facts("show", str(area))["area"]["receivers"] == ["name 1", "name 2"]
    refused = run("forget", str(area), "nobody")
    assert (refused.exit_code, "expected: name 1, name 2" in refused.output) == (1, True)
    assert facts("forget", str(area), "name 1") == {
        **{"path": str(area), "receiver": "name 1", "receivers": ["name 2"], "pending": 0}
    }
    assert "receivers    name 2" in run("show", str(area)).output
    assert "expected: none" in run("forget", str(area), "name 2").output


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


def test_an_area_without_segments_is_damaged_for_good(area: Path, tmp_path: Path) -> None:
    for path in area.glob("*.gmd"):
        path.unlink()
    (finding,) = facts("verify", str(area), exit_code=1)["findings"]
    assert finding["file"] == str(area)
    assert "all segments of the area are missing" in finding["reason"]
    assert "repairs what names no other cure" in run("verify", str(area)).output
    assert facts("list", "--directory", str(tmp_path))["areas"][0]["damaged"] == 1
    agent = run("agent", "--directory", str(tmp_path), "--once")
    assert "not opened" in agent.output
    repair = run("repair", str(area))
    assert (repair.exit_code, "'ipcbus gmd purge') and give up what was pending" in repair.output) == (1, True)
    assert not list(area.glob("*.gmd"))


def test_a_receivers_area_without_acknowledgements_is_repaired(tmp_path: Path) -> None:
    folder, owner = area_folder(tmp_path, "audit", "orders", "receiver"), AreaIdentity("audit", "orders", "default")
    opened = FileReceiverArea.open(Disk(), folder, owner)
    opened.record("gateway", 0xABCDEF, 5, [])
    opened.close()
    (folder / "acknowledged").unlink()
    assert [each["role"] for each in facts("list", "--directory", str(tmp_path))["areas"]] == ["receiver"]
    (finding,) = facts("verify", str(folder), exit_code=1)["findings"]
    assert (
        "acknowledged: the file is missing; restore it from a backup, or run 'ipcbus gmd repair'" in finding["reason"]
    )
    assert facts("repair", str(folder))["repaired"] == 1
    assert not list(folder.glob("*.gmd"))
    assert facts("verify", str(folder))["findings"] == []
    opened = FileReceiverArea.open(Disk(), folder, owner)
    assert opened.streams() == []
    opened.close()


@pytest.mark.parametrize("role", ["source", "receiver"])
@pytest.mark.parametrize("change", ["missing", "flipped"])
def test_the_file_of_the_owner_is_written_again(area: Path, tmp_path: Path, role: str, change: str) -> None:
    folder, owner = area_folder(tmp_path, "gateway", "orders", role), AreaIdentity("gateway", "orders", "default", 7)
    if role == "receiver":
        opened = FileReceiverArea.open(Disk(), folder, AreaIdentity("gateway", "orders", "default"))
        opened.record("gateway", 0xABCDEF, 2, [])
        opened.close()
    path = folder / "area"
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.unlink() if change == "missing" else path.write_bytes(data)
    (finding,) = facts("verify", str(folder), exit_code=1)["findings"]
    assert f"'ipcbus gmd repair {folder} --owner NAME TOPIC DOMAIN'" in finding["reason"]
    assert f"'ipcbus gmd repair {folder} --owner NAME TOPIC DOMAIN'" in run("repair", str(folder)).output
    if role == "source":
        with pytest.raises(ipcbus.GmdAreaDamaged, match=f"'ipcbus gmd repair {folder} --owner gateway orders default'"):
            FileArea.open(Disk(), folder, owner)
    wrong = run("repair", str(folder), "--owner", "gatewy", "orders", "default")
    assert (wrong.exit_code, "ends with gatewy/orders/" in wrong.output) == (1, True)
    assert facts("repair", str(folder), "--owner", "gateway", "orders", "default")["repaired"] == 1
    assert facts("verify", str(folder))["findings"] == []
    other = run("repair", str(folder), "--owner", "gateway", "orders", "test")
    assert (other.exit_code, "in domain default, not to gateway" in " ".join(other.output.split())) == (1, True)
    if role == "receiver":
        acknowledged = FileReceiverArea.open(Disk(), folder, owner)
        assert acknowledged.known("gateway", 0xABCDEF).floor == 2
        acknowledged.close()
    else:
        sender = FileArea.open(Disk(), folder, owner)
        assert (sender.incarnation, sender.last_number, sender.pending) == (0xABCDEF, 4, 3)
        sender.close()


def test_an_area_whose_incarnation_is_lost_gets_a_new_one(area: Path) -> None:
    (area / "area").unlink()
    for path in area.glob("*.gmd"):
        path.write_bytes(bytes(64) + path.read_bytes()[64:])
    run("repair", str(area), "--owner", "gateway", "orders", "default")
    assert facts("show", str(area))["area"]["incarnation"] not in ("0000000000abcdef", "0000000000000000")


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


@pytest.mark.parametrize("role", ["source", "receiver"])
def test_nothing_is_left_of_an_area_that_was_removed(tmp_path: Path, role: str) -> None:
    folder = area_folder(tmp_path, "gateway", "orders", role)
    kind: Any = FileArea if role == "source" else FileReceiverArea
    kind.open(Disk(), folder, SENDER).close()
    assert facts("purge", str(folder), "--yes")["name"] == "gateway"
    assert facts("list", "--directory", str(tmp_path))["areas"] == []
    assert "there are no areas" in run("list", "--directory", str(tmp_path)).output
    for name, *more in (
        *(["show"], ["verify"], ["repair"], ["purge", "--yes"]),
        *(["forget", "settlement"], ["resend", "--seconds", "0"]),
    ):
        result = run(name, str(folder), *more)
        assert (result.exit_code, "there is no GMD area" in result.output) == (1, True), result.output
    agent = run("agent", "--directory", str(tmp_path), "--once")
    assert (agent.exit_code, agent.output) == (0, "")
    kind.open(Disk(), folder, SENDER).close()


def test_an_agent_refuses_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    missing = tmp_path / "a typo"
    result = run("agent", "--directory", str(missing), "--once")
    assert result.exit_code == 1
    assert f"{missing}: there is no such directory" in result.output
    assert f"mkdir -p -m 700 '{missing}'" in result.output
    assert not missing.exists()


def test_an_agent_may_start_before_the_first_sender_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert run("agent", "--once").exit_code == 0


@pytest.mark.parametrize("name", ["list", "agent"])
def test_a_file_in_place_of_the_directory_is_an_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    result = run(name, "--directory", str(path), *(["--once"] if name == "agent" else []))
    assert (result.exit_code, f"{path}: this is not a directory" in result.output) == (1, True), result.output


def test_an_agent_forgets_an_area_that_it_refused_when_it_is_removed(area: Path, tmp_path: Path) -> None:
    spoil(area)
    agent = Agent(Disk(), tmp_path, lambda _: None)
    try:
        agent.look()
        assert agent.troubles == 1
        purge_area(Disk(), area)
        agent.look()
        assert agent.troubles == 0
    finally:
        agent.close()


def test_a_missing_area_is_an_error(tmp_path: Path) -> None:
    for name in ("show", "verify", "repair", "purge"):
        result = run(name, str(tmp_path / "none"))
        assert result.exit_code == 1
        assert "there is no GMD area" in result.output


def test_a_directory_that_is_no_area_is_an_error_and_stays_as_it_is(area: Path, tmp_path: Path) -> None:
    FileArea.open(Disk(), area, SENDER).close()
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    for folder in (area.parent, other):
        before = sorted(folder.rglob("*"))
        for name in ("show", "verify", "repair", "purge"):
            result = run(name, str(folder), *(["--yes"] if name == "purge" else []))
            assert (result.exit_code, "there is no GMD area" in result.output) == (1, True), result.output
        assert sorted(folder.rglob("*")) == before


def test_a_tail_counts_what_is_acknowledged_between_its_looks(area: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = FileArea.open(Disk(), area, SENDER)
    acknowledged = iter([1, 0, 2])

    def wait(handler: SignalHandler, _: float) -> None:
        count = next(acknowledged, -1)
        if count < 0:
            raise Stopped(signal.SIGINT)
        for _ in range(count):
            number = opened.save(SOME, 0, 1, b"", b"more")
            opened.release(number, number)
        opened.save(SOME, 0, 1, b"", b"last")
        opened.write_releases()

    monkeypatch.setattr(SignalHandler, "wait", wait)
    lines = run("show", str(area), "--tail").output.splitlines()
    opened.close()
    assert [line.split()[0] for line in lines] == ["1", "3", "4", "6", "and", "7", "10", "and"]
    assert [" ".join(line.split()) for line in lines if "and" in line] == [
        "and 1 message, acknowledged meanwhile",
        "and 2 messages, acknowledged meanwhile",
    ]


def test_a_tail_needs_the_area_of_a_source(tmp_path: Path) -> None:
    folder = area_folder(tmp_path, "settlement", "orders", "receiver")
    FileReceiverArea.open(Disk(), folder, AreaIdentity("settlement", "orders", "default")).close()
    result = run("show", str(folder), "--tail")
    assert result.exit_code == 1
    assert "this is the area of a receiver; give the area of a source" in result.output


@pytest.fixture
def failed_area(domain: str, tmp_path: Path) -> Path:
    """A sender's area with three messages that have failed, as no receiver was expected."""
    failures: list[ipcbus.SourceEvent] = []
    with ipcbus.Context(domain=domain) as context:
        options: dict[str, Any] = {"ipc_gmd_directory": str(tmp_path), "gmd_zero_receivers": "failure"}
        source = context.source("orders", gmd_name="gateway", delivery_mode="all", on_event=failures.append, **options)
        for _ in range(3):
            source.send(b"x", flush=True)
        until(lambda: len(failures) == 3, "three failures")
    return area_folder(tmp_path, "gateway", "orders", "source")


def test_an_agent_that_opens_an_area_says_what_has_failed_there(
    failed_area: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert facts("show", str(failed_area))["area"]["failed"] == 3
    monkeypatch.setattr(LeftArea, "failed", lambda _: 0)  # as long as no event of the source has come
    result = run("agent", "--directory", str(tmp_path), "--once", "--json")
    opened = json.loads(result.stdout.splitlines()[0])
    assert (opened["event"], opened["pending"], opened["failed"]) == ("opened", 3, 3)


def test_resend_says_what_the_area_keeps_in_the_end(failed_area: Path) -> None:
    for _ in range(3):
        result = run("resend", str(failed_area), "--seconds", "0", "--json")
        found, kept = json.loads(result.stdout), facts("show", str(failed_area))["area"]
        assert (found["pending"], found["failed"]) == (kept["pending"], kept["failed"])
        assert result.exit_code == (1 if kept["failed"] else 0)
