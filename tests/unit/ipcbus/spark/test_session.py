from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import ConfigError
from ipcbus.spark.session import check_java

if TYPE_CHECKING:
    from pathlib import Path


def fake_java(directory: Path, script: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o700)
    return directory


def refusal(monkeypatch: pytest.MonkeyPatch, *, home: Path | None = None, path: str = "/nowhere") -> str:
    monkeypatch.setenv("PATH", path)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(ConfigError) as caught:
        check_java()
    text = str(caught.value)
    assert "apt install openjdk-17-jre-headless" in text
    assert "JAVA_HOME" in text
    return text


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "PATH has no java and JAVA_HOME is not set" in refusal(monkeypatch)


def test_java_home_that_leads_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert f"{tmp_path}/bin/java cannot be run" in refusal(monkeypatch, home=tmp_path)


def test_java_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path, "echo no room >&2; exit 1")
    assert "-version failed: no room" in refusal(monkeypatch, home=home)


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_392", "8"), ("11.0.20", "11")])
def test_java_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, shown: str) -> None:
    home = fake_java(tmp_path, f"echo 'openjdk version \"{version}\"' >&2")
    assert f"Spark needs Java 17, but {home}/bin/java is version {shown}" in refusal(monkeypatch, home=home)


@pytest.mark.parametrize("line", ['openjdk version "17.0.15" 2025-04-15', 'java version "25" 2025-09-16'])
def test_java_that_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, f"echo '{line}' >&2")))
    check_java()


def test_discovery_loads_little() -> None:
    """Spark imports it whatever format a query asks for."""
    script = (
        "import json, sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_ipcbus\n"
        "assert pyspark_ipcbus.DefaultSource.name() == 'ipcbus'\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert set(loaded) == {"ipcbus", "ipcbus.spark", "ipcbus.spark.data_source", "ipcbus.version", "pyspark_ipcbus"}
