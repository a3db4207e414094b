from __future__ import annotations

import os
import subprocess
import sys
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


def line(number: int, key: bytes = KEY) -> bytes:
    return b"%d %s\n" % (number, key.hex().encode())


@pytest.mark.parametrize(
    ("content", "numbers"),
    [
        (line(1), [1]),
        (line(65535).rstrip(), [65535]),
        (b"# the new one\n\n" + line(7) + b"  " + line(3).upper().replace(b" ", b"\t "), [7, 3]),
        (b"\r\n".join(line(number).rstrip() for number in range(1, 17)), list(range(1, 17))),
    ],
)
def test_keys(file: Path, content: bytes, numbers: list[int]) -> None:
    file.write_bytes(content)
    assert list(network_key.read(str(file)).items()) == [(number, KEY) for number in numbers]
    file.chmod(0o400)
    assert len(network_key.read(str(file))) == len(numbers)


@pytest.mark.parametrize("content", [b"", b"\n", b"# 1 key\n"])
def test_no_key(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert "has 0 keys, but it must have 1 to 16. Make a key with: " in refusal(file)


def test_too_many_keys_and_numbers_that_come_twice(file: Path) -> None:
    file.write_bytes(b"".join(map(line, range(1, 18))))
    assert "has 17 keys" in refusal(file)
    file.write_bytes(line(1) + line(2) + line(1, bytes(32)))
    assert "line 3 has the number 1 again" in refusal(file)
    file.write_bytes(bytes(4097))
    assert "more than 4096 bytes" in refusal(file)


@pytest.mark.parametrize(
    "content",
    [KEY, KEY.hex().encode(), line(0), line(65536), line(1, KEY[1:]), line(1, KEY + KEY), line(1)[:-1] + b" x", b"1"],
)
def test_a_damaged_line_is_named_and_not_shown(file: Path, content: bytes) -> None:
    file.write_bytes(line(9) + content)
    text = refusal(file)
    assert "line 2 is not a number from 1 to 65535, a space and a key of 64 hexadecimal digits. Make a key" in text
    assert KEY.hex()[2:] not in text


def test_the_command_of_the_error_makes_a_key(file: Path) -> None:
    command = refusal(file).partition("with: ")[2].partition(", and copy")[0].replace("python3", sys.executable)
    file.unlink()
    subprocess.run(["bash", "-c", command], check=True)
    ((number, key),) = network_key.read(str(file)).items()
    assert (number, len(key)) == (1, 32)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o610])
def test_others_may_not_use_it(file: Path, mode: int) -> None:
    file.write_bytes(line(1))
    file.chmod(mode)
    assert f"has mode {mode:04o}, so that other users may use the key" in refusal(file)
    assert f"chmod 600 {file}" in refusal(file)


def test_of_another_user(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(line(1))
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
