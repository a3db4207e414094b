"""From the errors of the rings to the errors of the public face."""

from __future__ import annotations

from ipcbus.errors import LayoutMismatch, PermissionRefused, SessionGone, SharedMemoryFull, TransportError
from ringbuf import errors

_same = {
    errors.SegmentFull: SharedMemoryFull,
    errors.SegmentGone: SessionGone,
    errors.SegmentRefused: PermissionRefused,
    errors.SegmentMismatch: LayoutMismatch,
}


def as_ipcbus_error(error: errors.RingError) -> TransportError:
    """The public error with the same text."""
    return _same.get(type(error), TransportError)(str(error))
