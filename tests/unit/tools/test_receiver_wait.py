from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from ipcbus_tools.common import Failure
from ipcbus_tools.receiver_wait import wait_for_receivers
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable


class Waited:
    """A source whose receivers join at once, after the note, or never."""

    def __init__(self, topic: str, *, joins: bool = True, after: Callable[[], bool] | None = None) -> None:
        self.topic = topic
        self.joins, self.after = joins, after
        self.calls: list[tuple[int, float]] = []

    def wait_for_receivers(self, n: int, timeout: float) -> None:
        self.calls.append((n, timeout))
        if self.after is not None:
            until(self.after, "the note")
        if not self.joins:
            raise TimeoutError(f"topic {self.topic!r}: 0 of {n} had joined")


def wait(*sources: Waited, timeout: float = 10, quiet: bool = False, count: int = 1) -> None:
    wait_for_receivers(cast("list[Any]", sources), count, timeout, domain="d", quiet=quiet)


def test_receivers_that_are_there_need_no_note(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = Waited("a"), Waited("b")
    wait(one, other, count=2, timeout=1000)
    for each in (one, other):
        ((count, timeout),) = each.calls  # a single wait, so that the error of a wait in vain says the whole time
        assert (count, 900 < timeout <= 1000) == (2, True)
    assert capsys.readouterr() == ("", "")


def test_a_longer_wait_is_explained_once(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []

    def is_explained() -> bool:
        said.append(capsys.readouterr().err)
        return "".join(said).endswith("\n")

    wait(Waited("a\x1b", after=is_explained), Waited("b"))
    out, err = capsys.readouterr()
    (line,) = "".join([*said, err]).splitlines()
    assert line.startswith("waiting for 1 receiver of topic 'a\\x1b' in domain 'd', at most ")
    assert line.endswith(" s more; --wait-receivers 0 sends without receivers")
    assert out == ""


@pytest.mark.parametrize(("timeout", "quiet"), [(10, True), (0.05, False), (0, False)])
def test_programs_and_short_waits_get_no_note(timeout: float, quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    source = Waited("a", joins=False)
    with pytest.raises(Failure, match="topic 'a': 0 of 1 had joined; --wait-receivers 0 sends without receivers"):
        wait(source, timeout=timeout, quiet=quiet)
    assert len(source.calls) == 1
    assert capsys.readouterr().err == ""
