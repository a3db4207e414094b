"""What is left to be told to receivers as long as the driver may not call them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipcbus.runtime.driver import Driver
    from ipcbus.runtime.telling import Teller
    from ipcbus.transport.receiving import ReceivingSession


class Debts:
    """Those of one context. Runs on the driver."""

    def __init__(self, driver: Driver, teller: Teller) -> None:
        """Nothing is owed."""
        self._driver, self._teller = driver, teller
        self.any = False

    def owe(self) -> bool:
        """Leaves what would call receivers back to the next `attend`, as long as the driver is quiet."""
        if self._driver.quiet:
            self.any = self._driver.pump.attention = True
        return self._driver.quiet

    def pay(self, sessions: Iterable[ReceivingSession]) -> None:
        """Tells what was left to be told; comes before everything else that is told.

        Args:
            sessions: those that are joined; asked for one by one, as callbacks may have some left.
        """
        if not self.any:
            return
        self.any = False
        for session in sessions:
            self._teller.introduce_all(session)
            session.tell_begin()
        self._teller.tell_missing()
