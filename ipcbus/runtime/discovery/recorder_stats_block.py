"""The stats block of a recorder."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from ipcbus.runtime.error_mapping import as_ipcbus_error
from ipcbus.wire.wire_layout import RECORDER_ENTRY
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from ipcbus.resolution.local.registry import Registry


class RecorderStatsBlock:
    """A recorder's entry in the registry of its context; made by `Context._recorder_stats_block`.

    The entry exists until `close`, or until the end of the context. Any thread may use it, and no method makes a system
    call. Statistics report that a recorder hangs when it has not called `show` for seconds, so call `show` several
    times a second, also without a change.
    """

    def __init__(self, registry: Registry, name: str) -> None:
        """Adds the entry of a new recorder.

        Args:
            registry: the registry of its context.
            name: the path of its log: the archive and the stream in it. A long path is shown by its end.

        Raises:
            ipcbus.SharedMemoryFull: the registry cannot grow.
        """
        self._registry = registry
        self._lock = threading.Lock()
        try:
            self._entry: int | None = registry.add_recorder(name)
        except RingError as error:
            raise as_ipcbus_error(error) from error
        view = registry.mapping.view(registry.entry_offset(self._entry), RECORDER_ENTRY.itemsize)
        self._values = np.frombuffer(view, RECORDER_ENTRY, 1).reshape(())
        self.show()

    def show(self, **values: int) -> None:
        """Writes changed counters; does nothing after `close`, the end of the context, or in the child of a fork.

        Args:
            **values: by the names of the counters of kind `recorder` (`ipcbus.stats.counters_of`): `messages`, `bytes`,
                `losses`, `lost`, `dropped`, `missed`, `next_offset`, `buffered_bytes`, `buffer_bytes`, `behind_ns`,
                `errors`; and `failing`, 1 while the disk refuses. Each value is the whole count so far, or the value
                now, and is not negative.
        """
        with self._lock:
            if self._entry is None or self._registry.fd < 0:
                return
            for name, value in values.items():
                self._values[name] = value
            self._values["shown_ns"] = time.monotonic_ns()

    def close(self) -> None:
        """Removes the entry. Closing twice does nothing."""
        with self._lock:
            entry, self._entry = self._entry, None
            if entry is not None and self._registry.fd >= 0:
                self._registry.remove(entry)
