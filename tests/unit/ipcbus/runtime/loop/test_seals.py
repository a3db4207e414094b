"""The seals of a context: keys that change while it runs, what it says of what it drops, and a missing package."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import ConfigError
from ipcbus.runtime.loop.seals import Seals
from ipcbus.runtime.loop.timerfd import FOREVER_NS
from tests.kit.network_keys import key_file

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus.transport.udp.sealing import Seal

SECOND = 1_000_000_000


def ends(seals: Seals) -> tuple[Seal, Seal]:
    """Of sources and of receivers."""
    assert seals.source is not None
    assert seals.receiver is not None
    return seals.source, seals.receiver


def test_without_a_key_there_is_nothing_to_do() -> None:
    seals = Seals("d", "", 64)
    assert (seals.source, seals.receiver, seals.resolution) == (None, None, None)
    assert seals.turn(5) == FOREVER_NS
    assert seals.dropped() == 0


@pytest.mark.parametrize("encrypts", [True, False])
def test_what_one_context_seals_another_opens_for_the_same_purpose(tmp_path: Path, encrypts: bool) -> None:
    path = key_file(tmp_path / "keys", {1: b"1"})
    source, receiver = ends(Seals("d", path, 64, encrypts=encrypts))
    other_source, other_receiver = ends(Seals("d", path, 64))
    sealed = source.seal(b"data of a source")
    assert (b"data of a source" in sealed) is not encrypts
    assert other_source.open(sealed) is None
    assert other_receiver.open(sealed) == b"data of a source"
    answer = receiver.seal(b"nak")
    assert other_receiver.open(answer) is None
    assert other_source.open(answer) == b"nak"
    stream = source.for_stream()
    assert other_receiver.open(stream.seal(b"1")) == b"1"
    assert stream.seal(b"1")[:20] != sealed[:20]


def test_a_file_that_changes_is_read_again_within_a_second(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ipcbus")
    path = tmp_path / "keys"
    seals = Seals("d", key_file(path, {1: b"1"}), 64)
    source, _ = ends(seals)
    stream = source.for_stream()
    assert seals.turn(SECOND) == 2 * SECOND
    key_file(path, {2: b"2", 1: b"1"})
    assert seals.turn(SECOND + 1) == 2 * SECOND
    assert source.seal(b"")[3] == 1
    assert seals.turn(2 * SECOND) == 3 * SECOND
    assert source.seal(b"")[3] == stream.seal(b"")[3] == 2
    key_file(path, {1: b"1", 2: b"2"})
    seals.turn(3 * SECOND)
    assert source.seal(b"")[3] == 1
    assert caplog.messages == [
        "the context seals with key 2, and opens with 2, 1",
        "the context seals with key 1, and opens with 1, 2",
    ]


@pytest.mark.parametrize("damage", ["text", "mode", "gone"])
def test_a_damaged_file_leaves_the_keys_as_they_are_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    path = tmp_path / "keys"
    seals = Seals("d", key_file(path, {1: b"1"}), 64)
    source, _ = ends(seals)
    if damage == "text":
        path.write_text("1 half")
    elif damage == "mode":
        path.chmod(0o644)
    else:
        path.unlink()
    for second in range(1, 5):
        seals.turn(second * SECOND)
    assert source.seal(b"")[3] == 1
    (text,) = caplog.messages
    assert text.startswith(f"option network_key_file (scope context) = {str(path)!r}")
    assert text.endswith("The context goes on with the keys that it has")
    key_file(path, {3: b"3"})
    seals.turn(9 * SECOND)
    assert source.seal(b"")[3] == 3


def test_what_is_dropped_is_counted_and_reported_every_ten_minutes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = key_file(tmp_path / "keys", {1: b"1"})
    seals = Seals("d", path, 64)
    _, receiver = ends(seals)
    strangers = [ends(Seals("d", key_file(tmp_path / "other", {n: b"2"}), 64))[0] for n in (1, 7)]
    assert seals.turn(SECOND)
    assert caplog.messages == []
    for packet in (b"open", strangers[0].seal(b"p"), strangers[1].seal(b"p"), strangers[1].seal(b"p")):
        assert receiver.open(packet) is None
    counts = receiver.counts
    assert (counts.unsealed, counts.forged, counts.unknown_key, seals.dropped()) == (1, 1, 2, 4)
    seals.turn(2 * SECOND)
    (text,) = caplog.messages
    assert text == (
        "datagrams dropped: 1 without a seal; 2 sealed with a key of another number; 1 changed, of another domain, "
        f"or sealed with another key of the same number. This context opens with key 1 of {path!r}: "
        "compare the files of all hosts"
    )
    assert receiver.open(b"open") is None
    seals.turn(601 * SECOND)
    assert len(caplog.messages) == 1
    seals.turn(602 * SECOND)
    seals.turn(2000 * SECOND)
    assert len(caplog.messages) == 2
    assert "datagrams dropped: 1 without a seal. This" in caplog.messages[1]


def test_without_the_package_a_key_is_refused_and_a_context_without_a_key_does_not_need_it(tmp_path: Path) -> None:
    path = key_file(tmp_path / "keys", {1: b"1"})
    program = f"""
import sys
sys.modules["cryptography"] = None
import ipcbus
from ipcbus.runtime.loop import udp_endpoints
from ipcbus.runtime.loop.seals import Seals
Seals("d", "", 64)
try:
    Seals("d", {path!r}, 64)
except ipcbus.ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"option network_key_file (scope context) = {path!r} needs the package cryptography; "
        "in a clone of ipcbus: pip install '.[network-key]'\n"
    )


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Seals("d", str(tmp_path / "none"), 64)
