from __future__ import annotations

import threading

import pytest

from ipcbus.runtime.loop.driver_lock import _locked


def test_an_interrupt_without_the_lock_stays_an_interrupt() -> None:
    condition = threading.Condition()
    with pytest.raises(KeyboardInterrupt), _locked(condition):
        condition.release()  # as wait() does before it sleeps
        raise KeyboardInterrupt
    with _locked(condition):
        assert not _other_gets(condition)
    assert _other_gets(condition)


def _other_gets(condition: threading.Condition) -> bool:
    got: list[bool] = []

    def take() -> None:
        got.append(condition.acquire(blocking=False))
        if got[0]:
            condition.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return got[0]
