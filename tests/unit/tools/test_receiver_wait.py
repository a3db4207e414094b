from __future__ import annotations

from typing import Any, cast

import pytest

from ipcbus_tools.common import Failure
from ipcbus_tools.receiver_wait import SOON_S, wait_for_receivers


class Waited:
    """A source whose receivers join after some calls."""

    def __init__(self, topic: str, refusals: int) -> None:
        self.topic = topic
        self.refusals = refusals
        self.calls: list[tuple[int, float]] = []

    def wait_for_receivers(self, n: int, timeout: float) -> None:
        self.calls.append((n, timeout))
        if len(self.calls) <= self.refusals:
            raise TimeoutError(f"topic {self.topic!r}: 0 of {n} had joined")


def wait(*sources: Waited, timeout: float = 10, quiet: bool = False, count: int = 1) -> None:
    wait_for_receivers(cast("list[Any]", sources), count, timeout, domain="d", quiet=quiet)


def test_receivers_that_are_there_need_no_note(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = Waited("a", 0), Waited("b", 0)
    wait(one, other, count=2)
    assert one.calls == other.calls == [(2, SOON_S)]
    assert capsys.readouterr() == ("", "")


def test_a_longer_wait_is_explained_once(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = Waited("a\x1b", 1), Waited("b", 0)
    wait(one, other)
    assert [len(each.calls) for each in (one, other)] == [2, 1]
    assert SOON_S < one.calls[1][1] <= 10
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert line.startswith("waiting for 1 receiver of topic 'a\\x1b' in domain 'd', at most ")
    assert line.endswith(" s more; --wait-receivers 0 sends without receivers")
    assert out == ""


@pytest.mark.parametrize(("timeout", "quiet"), [(10, True), (0.05, False), (0, False)])
def test_programs_and_short_waits_get_no_note(timeout: float, quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    source = Waited("a", 1)
    with pytest.raises(Failure, match="topic 'a': 0 of 1 had joined; --wait-receivers 0 sends without receivers"):
        wait(source, timeout=timeout, quiet=quiet)
    assert len(source.calls) == 1
    assert capsys.readouterr().err == ""
