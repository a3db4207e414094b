"""From the errors of the rings to those of the public face."""

from __future__ import annotations

import pytest

import ipcbus
from ipcbus.runtime.faults import as_ipcbus_error
from ringbuf import errors


@pytest.mark.parametrize(
    ("ring", "public"),
    [
        (errors.SegmentFull, ipcbus.SharedMemoryFull),
        (errors.SegmentGone, ipcbus.SessionGone),
        (errors.SegmentRefused, ipcbus.PermissionRefused),
        (errors.SegmentMismatch, ipcbus.LayoutMismatch),
        (errors.SlotsFull, ipcbus.TransportError),
        (errors.RingError, ipcbus.TransportError),
    ],
)
def test_each_error_keeps_its_text(ring: type[errors.RingError], public: type[ipcbus.TransportError]) -> None:
    error = as_ipcbus_error(ring("what, why and the cure"))
    assert type(error) is public
    assert str(error) == "what, why and the cure"
