from __future__ import annotations

import os
import signal

import pytest

from ipcbus_tools.signals import SignalHandler, Stopped


def _signal_and_wait(number: int, signals: SignalHandler) -> None:
    os.kill(os.getpid(), number)
    signals.wait(30)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_raises_where_it_may(number: int, code: int) -> None:
    with SignalHandler() as signals, pytest.raises(Stopped) as stopped, signals.interruptible():
        _signal_and_wait(number, signals)
    assert stopped.value.exit_code == code


def test_waits_until_it_may() -> None:
    with SignalHandler() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.signum == signal.SIGTERM
        with pytest.raises(Stopped), signals.interruptible():
            pytest.fail("began although a signal had come")


def test_the_first_signal_counts_and_later_ones_disturb_nothing() -> None:
    with SignalHandler() as signals:
        with pytest.raises(Stopped) as stopped, signals.interruptible():
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped.value.exit_code == 143
        with pytest.raises(Stopped) as again, signals.interruptible():
            pass
        assert again.value.exit_code == 143


def test_gives_the_signals_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with SignalHandler():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_is_no_error_that_somebody_catches() -> None:
    assert not issubclass(Stopped, Exception)
