"""`ipcbus record` and `ipcbus replay` of archives in this process, through click's runner."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import ipcbus
from ipcbus.archive import Archive
from ipcbus_tools.cli import cli
from tests.kit.archives import made
from tests.kit.bus import GIVE_UP_S
from tests.kit.recording import rows_of, values

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

NOW = 1_700_000_000_000_000_000


@pytest.fixture
def context(domain: str) -> Iterator[ipcbus.Context]:
    """Sends and receives."""
    with ipcbus.Context(domain=domain) as found:
        yield found


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Two topics: ten messages of each, a second apart."""
    found = Archive.create(tmp_path / "archive")
    with found.writer("desk") as writer:
        for number in range(10):
            for topic in ("a", "b"):
                rows, data = made(
                    [b"%s%d" % (topic.encode(), number)],
                    topic=writer.topic(topic),
                    session=writer.session("x"),
                    time_ns=NOW + number * 10**9,
                )
                writer.append(rows, data)
        writer.append(*made([b""], topic=writer.topic("a"), session=writer.session("x"), time_ns=NOW + 10**10, type=4))
    return found


def run(*arguments: str) -> Result:
    """Runs `ipcbus` with these arguments."""
    return CliRunner().invoke(cli, arguments)


def facts(result: Result) -> dict[str, Any]:
    """What a command with --json has printed."""
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("as_json", [True, False])
def test_record(domain: str, context: ipcbus.Context, tmp_path: Path, as_json: bool) -> None:
    source = context.source("t")

    def send() -> None:
        source.wait_for_receivers(1, GIVE_UP_S)
        source.send_many([b"one", b"two", b"three"], flush=True)

    sending = threading.Thread(target=send)
    sending.start()
    arguments = (
        "record",
        "t",
        "--to",
        str(tmp_path / "new"),
        "--stream",
        "desk",
        "--messages",
        "3",
        "--domain",
        domain,
    )
    result = run(*arguments, "--buffer", "1M", "--sync", "never", *(["--json"] if as_json else []))
    sending.join()
    assert f"recording into {tmp_path / 'new'}, stream desk, from offset 0" in result.stderr
    if as_json:
        found = facts(result)
        assert found.pop("seconds") > 0
        assert found == {
            "archive": str(tmp_path / "new"),
            "stream": "desk",
            "first_offset": 0,
            "next_offset": 4,
            **{"messages": 3, "bytes": 11, "losses": 0, "lost": 0, "dropped": 0},
            **{"too_large": 0, "missed": 0, "unwritten": 0, "errors": 0, "error": ""},
        }
    else:
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("3 messages, 11 B in ")
        assert result.stdout.endswith(f"offsets 0-3 of stream desk in {tmp_path / 'new'}\nnothing lost\n")
        assert " in 1 log\n" in run("archive", "info", str(tmp_path / "new")).stdout
    assert values(rows_of(Archive(tmp_path / "new"))) == [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((), 2, "Missing argument 'TOPIC...'"),
        (("t", "--buffer", "much"), 2, "'much' is not a size"),
        (("t", "--buffer", "4096"), 2, "buffer_bytes = 4096"),
        (("t", "--buffer", "99999999T"), 2, "buffer_bytes = "),
        (("(", "--pattern"), 2, "is an invalid regular expression"),
        (("t", "--stream", "a/b"), 2, "is not a valid name"),
        (("t", "--segment-bytes", "3G"), 2, "segment_bytes"),
        (("t", "--stream", "desk"), 1, "is written by"),
    ],
)
def test_record_refuses(domain: str, archive: Archive, arguments: tuple[str, ...], code: int, text: str) -> None:
    with archive.writer("desk"):
        result = run("record", *arguments, "--to", str(archive.path), "--domain", domain)
    assert result.exit_code == code
    assert text in result.stderr


def test_replay_to_receivers(domain: str, context: ipcbus.Context, archive: Archive) -> None:
    got: list[tuple[str, bytes]] = []
    for topic in ("b", "z"):
        context.receiver(topic, lambda message: got.append((message.topic, message.data)))
    arguments = ("replay", str(archive.path), "--rename", "a=z", "--loops", "2", "--wait-receivers", "1")
    found = facts(run(*arguments, "--domain", domain, "--json"))
    assert (found["messages"], found["bytes"], found["loops"]) == (40, 80, 2)
    assert (found["complete"], found["everything_read"], found["lost"], found["missing"]) == (True, True, 1, 0)
    assert found["topics"] == {"a": 20, "b": 20}
    context.close()
    for topic, value in (("z", b"a"), ("b", b"b")):
        mine = [data for name, data in got if name == topic and data]
        assert mine == [value + b"%d" % number for number in range(10)] * 2


@pytest.mark.parametrize(
    ("arguments", "topics"),
    [
        (("--topic", "a"), {"a": 10}),
        (("--select", "a", "--select", "b", "--start", "2"), {"a": 9, "b": 9}),
        (("--pattern", "[b-z]", "--end", "3"), {"b": 1}),
        (("--start", "2023-11-14T22:13:28+00:00", "--stream", "desk"), {"a": 2, "b": 2}),
        (("--end", "2023-11-14T22:13:23Z"), {"a": 3, "b": 3}),
        (("--start", "2023-11-14T22:13:29Z", "--speed", "100x", "--transport", "lbtsmx"), {"a": 1, "b": 1}),
    ],
)
def test_replay_of_a_part(domain: str, archive: Archive, arguments: tuple[str, ...], topics: dict[str, int]) -> None:
    arguments = (*arguments, "--wait-receivers", "0", "--domain", domain, "--json")
    assert facts(run("replay", str(archive.path), *arguments))["topics"] == topics


def test_replay_for_people(domain: str, archive: Archive) -> None:
    result = run("replay", str(archive.path), "--domain", domain, "--rename", "a=z", "--wait-receivers", "0")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    assert lines[1] == ["topic", "sent", "as", "messages", "payload"]
    assert lines[2:4] == [["a", "z", "10", "20", "B"], ["b", "b", "10", "20", "B"]]
    assert result.stdout.splitlines()[-2].startswith("20 messages, 40 B in ")
    assert result.stdout.splitlines()[-1] == "1 sequence number lost before the recording"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--topic-from", "stream"), 2, "--topic-from is for files"),
        (("--rename", "a"), 2, "'a' is not OLD=NEW"),
        (("--rename", "=a"), 2, "is not OLD=NEW"),
        (("--start", "soon"), 2, "neither an offset nor a time"),
        (("--start", "0001-01-01"), 2, "neither an offset nor a time"),
        (("--start", "22"), 2, "has the offsets 0 to 21, not 22"),
        (("--topic", "x"), 1, "has no topic 'x'"),
        (("--stream", "x"), 1, "has no stream 'x'"),
        (("--timeout", "0.05"), 1, "0 of 1 receiving contexts"),
    ],
)
def test_replay_refuses(domain: str, archive: Archive, arguments: tuple[str, ...], code: int, text: str) -> None:
    result = run("replay", str(archive.path), *arguments, "--domain", domain)
    assert result.exit_code == code, result.output
    assert text in result.stderr


@pytest.mark.parametrize("option", ["--select", "--pattern", "--stream", "--start", "--end", "--loops", "--rename"])
def test_replay_of_a_file_knows_no_topics(domain: str, tmp_path: Path, option: str) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"line\n")
    result = run("replay", str(file), option, "1=2" if option == "--rename" else "1", "--domain", domain)
    assert result.exit_code == 2
    assert f"{option} is for archives" in result.stderr


def test_replay_of_a_file_takes_one_topic(domain: str, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"line\n")
    result = run("replay", str(file), "--topic", "a", "--topic", "b", "--domain", domain)
    assert result.exit_code == 2
    assert "a file has one --topic" in result.stderr
    done = run("replay", str(file), "--topic", "a", "--wait-receivers", "0", "--domain", domain, "--json")
    assert json.loads(done.stdout)["topics"] == {"a": 1}


def test_replay_of_no_archive(domain: str, tmp_path: Path) -> None:
    result = run("replay", str(tmp_path), "--domain", domain)
    assert result.exit_code == 1
    assert "is not an archive" in result.stderr
