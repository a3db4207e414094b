from __future__ import annotations

import os
from pathlib import Path

import pytest

from ipcbus.config import config_files
from ipcbus.errors import ConfigError

FLAT = "source transport_lbtipc_id 7\n"
TOML = "[source]\ntransport_lbtipc_id = 7\n"


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        config_files.read(path, str(path))
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bus.toml", TOML),
        ("bus.TOML", TOML),
        ("bus.cfg", TOML),
        ("bus", "# a comment\n\n  " + TOML),
        ("bus", "source = { transport_lbtipc_id = 7 }"),
        ("bus", "source.transport_lbtipc_id=7"),
        ("bus", '"source".transport_lbtipc_id = 7'),
        ("bus.cfg", FLAT),
        ("bus", "# [source]\n\n" + FLAT),
        ("bus", FLAT + "context context_name a=b\n"),
    ],
)
def test_which_kind_it_is(tmp_path: Path, name: str, text: str) -> None:
    content = config_files.read(written(tmp_path / name, text), name)
    assert content.sections["source"] == {"transport_lbtipc_id": 7}


def test_a_flat_file_named_toml_is_wrong_toml(tmp_path: Path) -> None:
    assert "is not TOML" in refusal(written(tmp_path / "bus.toml", FLAT))


@pytest.mark.parametrize("text", ["", "\n# nothing\n"])
def test_nothing_is_nothing(tmp_path: Path, text: str) -> None:
    for name in ("a.toml", "a.cfg"):
        assert config_files.read(written(tmp_path / name, text), name).sections == {}


def test_comments_in_any_encoding(tmp_path: Path) -> None:
    path = written(tmp_path / "um.cfg", b"# gr\xfc\xdfe\r\n" + FLAT.encode())
    assert config_files.read(path, "um.cfg").sections == {"source": {"transport_lbtipc_id": 7}}


@pytest.mark.parametrize("text", [FLAT, TOML])
def test_byte_order_mark(tmp_path: Path, text: str) -> None:
    path = written(tmp_path / "bus", b"\xef\xbb\xbf" + text.encode())
    assert config_files.read(path, "bus").sections == {"source": {"transport_lbtipc_id": 7}}


def test_xml(tmp_path: Path) -> None:
    assert "is XML: write it as TOML" in refusal(written(tmp_path / "um.xml", "\n<um-configuration>\n"))


@pytest.mark.parametrize("text", [b"[source]\nx = " + b"9" * 5000, b"[source]\nx = " + b"[" * 100_000, b"[source\xff]"])
def test_hostile_toml(tmp_path: Path, text: bytes) -> None:
    assert "is not TOML" in refusal(written(tmp_path / "bus.toml", text))


@pytest.mark.parametrize("name", ["bus.toml", "bus"])
def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, b"#")
    os.truncate(path, 1 << 40)
    assert f"longer than {config_files.SIZE_MAX} bytes" in refusal(path)
    assert "/dev/zero is longer than" in refusal(Path("/dev/zero"))


def test_of_a_line_without_end_the_text_shows_the_beginning(tmp_path: Path) -> None:
    text = refusal(written(tmp_path / "bus", FLAT + "x" * 500_000))
    assert "line 2" in text
    assert len(text) < 1000


def test_not_a_path(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path / "a\0b")
