"""What a recorder shows of itself, for statistics."""

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
    """A recorder's entry in the registry of its context; made by `Context._recorder_board`.

    It is there from the beginning until `close`, or the end of the context. May be used from any thread, and costs no
    system call. Shown several times a second it is as good as live; a recorder that does not show anything for seconds
    is said to hang, so `show` is to be called also when nothing has changed.
    """

    def __init__(self, registry: Registry, name: str) -> None:
        """Shows a recorder that has done nothing yet.

        Args:
            registry: of its context.
            name: path of its log, that is, of the archive and in it the stream; of a long one the end is shown.

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
        """Shows what has changed; does nothing after `close`, the end of the context, or in the child of a fork.

        Args:
            **values: by the names of the counters of kind `recorder` (`ipcbus.stats.counters_of`): `messages`, `bytes`,
                `losses`, `lost`, `dropped`, `missed`, `next_offset`, `buffered_bytes`, `buffer_bytes`, `behind_ns`,
                `errors`; and `failing`, 1 while the disk refuses. Each is the whole count so far, or the value now;
                none is negative.
        """
        with self._lock:
            if self._entry is None or self._registry.fd < 0:
                return
            for name, value in values.items():
                self._values[name] = value
            self._values["shown_ns"] = time.monotonic_ns()

    def close(self) -> None:
        """The recorder is no more. Closing twice does nothing."""
        with self._lock:
            entry, self._entry = self._entry, None
            if entry is not None and self._registry.fd >= 0:
                self._registry.remove(entry)
