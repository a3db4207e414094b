"""A directory is replaced as a whole, whatever ends the job that writes the new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipcbus.spark.pipelines.results import swap
from ipcbus.storage.files import Disk


class Killed(BaseException):
    """Ends a job anywhere."""


def put(text: str, where: str) -> None:
    """Writes a directory anew, as Spark does."""
    Path(where).mkdir(exist_ok=True)
    (Path(where) / "part").write_text(text)


def test_the_new_takes_the_place_of_the_old(tmp_path: Path) -> None:
    out = tmp_path / "results" / "out"
    for text in ("one", "two"):
        assert swap(out, lambda new, text=text: put(text, new)) == out  # type: ignore[misc]
        assert (out / "part").read_text() == text
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_a_write_that_is_killed_leaves_the_old(tmp_path: Path) -> None:
    out = tmp_path / "out"
    swap(out, lambda new: put("one", new))

    def write(new: str) -> None:
        put("half", new)
        raise Killed

    with pytest.raises(Killed):
        swap(out, write)
    assert (out / "part").read_text() == "one"
    swap(out, lambda new: put("two", new))
    assert (out / "part").read_text() == "two"


@pytest.mark.parametrize("renames", [0, 1])
def test_a_kill_between_the_renames_loses_nothing(
    tmp_path: Path, renames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    swap(out, lambda new: put("one", new))
    done = 0

    def rename(disk: Disk, old: Path, new: Path) -> None:
        nonlocal done
        if done == renames:
            raise Killed
        done += 1
        old.rename(new)

    with monkeypatch.context() as patched:
        patched.setattr(Disk, "rename", rename)
        with pytest.raises(Killed):
            swap(out, lambda new: put("two", new))

    def fail(new: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        swap(out, fail)
    assert (out / "part").read_text() == "one"
