"""From the errors of the rings to those of the public face."""

from __future__ import annotations

import ipcbus
from ipcbus.runtime.error_mapping import as_ipcbus_error
from ringbuf import ring_errors
from tests.kit.cases import each_of


@each_of(
    ("ring", "public"),
    [
        (ring_errors.SegmentFull, ipcbus.SharedMemoryFull),
        (ring_errors.SegmentGone, ipcbus.SessionGone),
        (ring_errors.SegmentRefused, ipcbus.PermissionRefused),
        (ring_errors.SegmentMismatch, ipcbus.LayoutMismatch),
        (ring_errors.SlotsFull, ipcbus.TransportError),
        (ring_errors.RingError, ipcbus.TransportError),
    ],
)
def test_each_error_keeps_its_text(ring: type[ring_errors.RingError], public: type[ipcbus.TransportError]) -> None:
    error = as_ipcbus_error(ring("what, why and the cure"))
    assert type(error) is public
    assert str(error) == "what, why and the cure"
