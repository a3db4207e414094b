"""Names at a glance are those that the registry shows, without numpy."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ipcbus
from ipcbus.resolution.local import object_names, quick_names
from ipcbus.resolution.local.adverts import Endpoint, SessionAdvert
from ipcbus.resolution.local.registry import OWNER_BYTE, Registry
from ipcbus.wire import wire_layout
from ringbuf.layout import MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator

ID = 0x78
RING = SessionAdvert(ID, 3, wire_layout.TRANSPORT_LBTSMX, 0xABCDEF, 30001, 65536, False, 1024)
UDP = SessionAdvert(ID, 4, wire_layout.TRANSPORT_LBTRM, 7, 0, 65536, True, 8, Endpoint("10.0.0.1", 9, "224.0.0.1", 10))


@pytest.fixture
def owned(domain: str) -> Iterator[Registry]:
    made = Registry(domain, ID, "a context", ipcbus.__version__, hidden=False, group="")
    yield made
    made.close()


def test_the_offsets_are_those_of_the_layout() -> None:
    header, entry = wire_layout.REGISTRY_HEADER, wire_layout.REGISTRY_ENTRY
    assert (quick_names.HEADER.size, quick_names.ENTRY.size) == (header.itemsize, entry.itemsize)
    made = np.zeros(1, header)
    made["magic"], made["kind"], made["domain"], made["release"], made["entries"] = 1, 2, b"d", b"r", 3
    found = quick_names.HEADER.unpack(made.tobytes())
    assert (*found[:2], found[2].rstrip(b"\0"), found[3].rstrip(b"\0"), found[4]) == (1, 2, b"d", b"r", 3)
    row = np.zeros(1, entry)
    row["state"], row["transport"], row["session_id"], row["transport_id"], row["local"] = 1, 2, 3, 4, 5
    row["name"] = b"n"
    assert [*quick_names.ENTRY.unpack(row.tobytes())] == [1, 2, 3, 4, 5, b"n".ljust(256, b"\0")]
    assert (quick_names.MAGIC, quick_names.KIND, quick_names.OWNER_BYTE) == (
        MAGIC,
        wire_layout.KIND_REGISTRY,
        OWNER_BYTE,
    )
    kinds = (wire_layout.ENTRY_SESSION, wire_layout.ENTRY_SOURCE, wire_layout.ENTRY_RECEIVER)
    assert kinds == (quick_names.SESSION, quick_names.SOURCE, quick_names.RECEIVER)


def test_what_a_registry_shows(owned: Registry, domain: str) -> None:
    owned.add_session(RING)
    owned.add_session(UDP)
    owned.add_source(3, "orders", 0)
    gone = owned.add_source(3, "gone", 1)
    owned.add_source(4, "quotes", 0)
    owned.add_source(9, "of no session", 0)
    owned.add_receiver("wanted")
    owned.add_receiver("a.*", wildcard=True)
    owned.remove(gone)
    sessions = {RING.source_string: ["orders"], UDP.source_string: ["quotes"]}
    assert list(quick_names.look(ipcbus.__version__, domain)) == [quick_names.QuickNames(domain, sessions, ["wanted"])]
    assert domain in {found.domain for found in quick_names.look(ipcbus.__version__)}


def test_what_is_dead_or_of_another_release_is_left_out(owned: Registry, domain: str) -> None:
    assert len(list(quick_names.look(ipcbus.__version__, domain))) == 1
    with open(f"/dev/shm/{owned.name}", "r+b") as file:
        file.seek(wire_layout.REGISTRY_HEADER.fields["release"][1])  # type: ignore[index]
        file.write(b"0.0.0\0")
    assert not list(quick_names.look(ipcbus.__version__, domain))
    other = Registry(domain, ID + 1, "", ipcbus.__version__, hidden=False, group="")
    os.close(other.fd)  # as when its process dies
    other.fd = -1
    del other.mapping
    assert not list(quick_names.look(ipcbus.__version__, domain))
    os.unlink(f"/dev/shm/{object_names.registry(domain, ID + 1)}")


def test_numpy_is_not_loaded() -> None:
    code = (
        "import sys; from ipcbus.resolution.local import quick_names; list(quick_names.look('1')); "
        "print('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
