"""Named receivers of a context; more in tests/conformance/test_gmd*.py."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

from ipcbus.runtime.receiving.gmd_receptions import GmdReceptions


class Subscriber:
    gates: tuple[object, ...] = ()


class Machine:
    """The figures of a session; another thread reads those of the receiver while the session is left."""

    resent, duplicates = 3, 1

    def __init__(self, receptions: GmdReceptions, subscription: Any) -> None:  # noqa: ANN401
        self._receptions, self._subscription = receptions, subscription
        self.seen: list[tuple[int, int]] = []

    @property
    def withholds(self) -> bool:
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(self._receptions.statistics, self._subscription).result()
        assert found is not None
        self.seen.append((found.resent, found.duplicates))
        return False


def test_figures_of_a_receiver_are_whole_while_a_session_is_left() -> None:
    subscription: Any = Subscriber()
    receptions = GmdReceptions("d", cast("Any", None), cast("Any", None), lambda session: True)
    machine, session = Machine(receptions, subscription), object()
    reception = SimpleNamespace(
        machine=machine, subscription=subscription, session=session, gate=None, close=lambda: None
    )
    receptions._all.append(cast("Any", reception))
    named = SimpleNamespace(ended=(2, 0), failing="")
    receptions._named[subscription] = cast("Any", named)
    receptions.forget(cast("Any", session))
    assert machine.seen == [(5, 1)]
    assert receptions._all == []
