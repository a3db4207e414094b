from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ipcbus.config import network_key
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

KEY = bytes(range(100, 132))


def refusal(path: object) -> str:
    with pytest.raises(ConfigError, match="option network_key_file") as caught:
        network_key.read(str(path))
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.touch(0o600)
    return path


@pytest.mark.parametrize("content", [KEY, KEY + b"\n", bytes(16), bytes(4096), bytes(4096) + b"\n"])
def test_a_key(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert network_key.read(str(file)) == content.removesuffix(b"\n")
    file.chmod(0o400)
    assert network_key.read(str(file)) == content.removesuffix(b"\n")


@pytest.mark.parametrize("content", [b"", b"\n", bytes(15), bytes(15) + b"\n", bytes(4097)])
def test_too_short_or_too_long(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert "a key must have 16 to 4096. Make one with: " in refusal(file)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o610])
def test_others_may_not_use_it(file: Path, mode: int) -> None:
    file.write_bytes(KEY)
    file.chmod(mode)
    assert f"has mode {mode:04o}, so that other users may use the key" in refusal(file)
    assert f"chmod 600 {file}" in refusal(file)


def test_of_another_user(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(KEY)
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "belongs to user" in refusal(file)


def test_no_file(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none")
    assert "not a regular file" in refusal(tmp_path)
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert "not a regular file" in refusal(tmp_path / "fifo")
    assert "null" in refusal("a\0b")
