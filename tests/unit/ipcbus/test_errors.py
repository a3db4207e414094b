from __future__ import annotations

import inspect

from ipcbus import errors
from tests.kit.cases import each_of

TREE = {
    "IpcBusError": "Exception",
    "ConfigError": "IpcBusError",
    "WouldBlock": "IpcBusError",
    "ClosedError": "IpcBusError",
    "QueueClosed": "ClosedError",
    "MessageTooLarge": "IpcBusError",
    "ReservationError": "IpcBusError",
    "WrongProcess": "IpcBusError",
    "WrongThread": "IpcBusError",
    "TransportError": "IpcBusError",
    "SharedMemoryFull": "TransportError",
    "LayoutMismatch": "TransportError",
    "PermissionRefused": "TransportError",
    "SegmentDamaged": "TransportError",
    "SessionGone": "TransportError",
    "RequestTimeout": "IpcBusError",
    "NoResponder": "IpcBusError",
    "GmdError": "IpcBusError",
    "GmdAreaFull": "GmdError",
    "GmdAreaDamaged": "GmdError",
    "GmdAreaLocked": "GmdError",
    "StorageError": "IpcBusError",
    "StorageFull": "StorageError",
    "ArchiveError": "IpcBusError",
    "ArchiveMissing": "ArchiveError",
    "ArchiveLocked": "ArchiveError",
    "ArchiveDamaged": "ArchiveError",
    "OffsetsExpired": "ArchiveError",
    "SinkError": "IpcBusError",
}

CLASSES = dict(inspect.getmembers(errors, inspect.isclass))


def test_tree() -> None:
    assert {name: error.__bases__[0].__name__ for name, error in CLASSES.items()} == TREE


def test_tree_in_the_module_text() -> None:
    text = inspect.getdoc(errors) or ""
    positions = [text.index(name) for name in TREE]
    assert positions == sorted(positions)


@each_of("name", TREE)
def test_says_when_and_the_cure(name: str) -> None:
    assert "Cure:" in (CLASSES[name].__doc__ or "")
