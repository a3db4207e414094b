"""Registries: what the owner writes is what the others read, at any moment."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.adverts import SessionAdvert, decode, text
from ipcbus.resolution.local.registry import PeerRegistry, Registry
from ipcbus.resolution.local.stale_cleanup import sweep
from ipcbus.wire import wire_layout
from ringbuf import liveness, segment
from ringbuf.layout import MAGIC
from ringbuf.ring_errors import SegmentGone, SegmentMismatch
from tests.kit.look import objects

if TYPE_CHECKING:
    from collections.abc import Iterator

ID = 0x77
SESSION = SessionAdvert(ID, 3, wire_layout.TRANSPORT_LBTSMX, 0xABCDEF, 30001, 65536, False, 1024)


@pytest.fixture
def owned(domain: str) -> Iterator[Registry]:
    made = Registry(domain, ID, "a context", "1.2.3", hidden=False, group="")
    yield made
    made.close()


@pytest.fixture
def peer(owned: Registry) -> Iterator[PeerRegistry]:
    found = PeerRegistry(owned.name)
    yield found
    found.close()


def read(peer: PeerRegistry) -> Any:  # noqa: ANN401 - a ContextAdvert
    """What it says now."""
    contents = peer.read()
    assert contents is not None
    return contents[1]


def test_a_new_registry_says_whose_it_is(domain: str, peer: PeerRegistry) -> None:
    advert = read(peer)
    assert (advert.context_id, advert.pid, advert.uid) == (ID, os.getpid(), os.geteuid())
    assert (advert.name, advert.domain, advert.release) == ("a context", domain, "1.2.3")
    assert (advert.sessions, advert.sources, advert.receivers) == ((), (), ())
    assert peer.alive()


def test_sessions_sources_and_receivers_are_read_back(owned: Registry, peer: PeerRegistry) -> None:
    owned.add_session(SESSION)
    owned.add_source(3, "quotes.ä", 17)
    owned.add_source(3, "kept", 18, retains=True)
    owned.add_receiver("x" * wire_layout.TOPIC_NAME_MAX)
    advert = read(peer)
    assert advert.sessions == (SESSION,)
    assert SESSION.source_string == "LBT-SMX:00abcdef:30001"
    source, kept = advert.sources
    assert (source.session, source.topic, source.topic_number, source.retains) == (SESSION, "quotes.ä", 17, False)
    assert (kept.topic, kept.topic_number, kept.retains) == ("kept", 18, True)
    (receiver,) = advert.receivers
    assert receiver.topic == "x" * wire_layout.TOPIC_NAME_MAX
    assert receiver.since_ns > 0
    assert not receiver.wildcard


def test_who_only_wants_what_is_offered_need_not_read_receivers(owned: Registry, peer: PeerRegistry) -> None:
    owned.add_session(SESSION)
    owned.add_source(3, "t", 17)
    owned.add_receiver("t")
    owned.add_receiver(".*", wildcard=True)
    contents = peer.read(receivers=False)
    assert contents is not None
    assert (len(contents[1].sources), contents[1].receivers) == (1, ())


def test_a_wildcard_receiver_is_read_back_with_as_much_of_its_pattern_as_has_a_place(
    owned: Registry, peer: PeerRegistry
) -> None:
    for pattern in (r"a\..*", "ä" * 200, "half \udc80"):
        owned.add_receiver(pattern, wildcard=True)
    receivers = read(peer).receivers
    assert all(receiver.wildcard for receiver in receivers)
    assert [receiver.topic for receiver in receivers] == [r"a\..*", "ä" * 127 + "\N{REPLACEMENT CHARACTER}", "half ?"]


def test_what_is_removed_is_gone_and_its_place_is_used_again(owned: Registry, peer: PeerRegistry) -> None:
    entries = [owned.add_receiver(topic) for topic in "abc"]
    owned.remove(entries[1])
    assert [receiver.topic for receiver in read(peer).receivers] == ["a", "c"]
    assert owned.add_receiver("d") == entries[1]
    assert sorted(receiver.topic for receiver in read(peer).receivers) == ["a", "c", "d"]


def test_a_registry_grows_and_entries_stay_where_they_are(owned: Registry, peer: PeerRegistry) -> None:
    topics = [f"topic {number}" for number in range(500)]
    entries = [owned.add_receiver(topic) for topic in topics]
    assert len(set(entries)) == 500
    assert sorted(receiver.topic for receiver in read(peer).receivers) == sorted(topics)
    for entry in entries[:499]:
        owned.remove(entry)
    assert [receiver.topic for receiver in read(peer).receivers] == ["topic 499"]


def test_an_entry_that_cannot_be_written_leaves_the_registry_as_it_was(owned: Registry, peer: PeerRegistry) -> None:
    """Else its version stays odd, and nobody can read it any more; or each failure costs an entry for good."""
    owned.add_receiver("before")
    before = peer.version()
    for _ in range(3):
        with pytest.raises(OverflowError):
            owned.add_source(0, "t", 1 << 70)
    assert peer.version() % 2 == 0
    assert peer.version() != before
    assert read(peer).sources == ()
    assert owned.add_receiver("after") == 1
    assert [each.topic for each in read(peer).receivers] == ["before", "after"]


def test_the_version_changes_with_every_entry(owned: Registry, peer: PeerRegistry) -> None:
    versions = [peer.version()]
    entry = owned.add_receiver("a")
    versions.append(peer.version())
    owned.remove(entry)
    versions.append(peer.version())
    assert len(set(versions)) == 3
    assert all(version % 2 == 0 for version in versions)


def test_a_registry_that_its_owner_left_in_the_middle_is_not_read(owned: Registry, peer: PeerRegistry) -> None:
    with owned._changing():  # as when it was killed here
        assert peer.read() is None
    assert peer.read() is not None


def test_a_reader_never_sees_half_an_entry(owned: Registry, peer: PeerRegistry) -> None:
    owned.add_session(SESSION)
    stop = threading.Event()

    def change() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            entry = owned.add_source(3, f"{number:08}" * 30, number)
            owned.remove(entry)

    thread = threading.Thread(target=change)
    thread.start()
    seen = 0
    while seen < 200:
        contents = peer.read()
        for source in contents[1].sources if contents else ():
            assert source.topic == f"{source.topic_number:08}" * 30
        seen += contents is not None
    stop.set()
    thread.join()


def test_the_owner_holds_its_lock_until_it_closes(domain: str, owned: Registry, peer: PeerRegistry) -> None:
    assert peer.alive()
    owned.abandon()
    assert not peer.alive()
    assert sweep(domain) == [owned.name]


def test_a_closed_registry_is_gone(domain: str, owned: Registry) -> None:
    owned.close()
    owned.close()
    assert objects(domain) == []
    with pytest.raises(SegmentGone):
        PeerRegistry(owned.name)


def test_an_id_that_is_taken_is_said_to_be(domain: str, owned: Registry) -> None:
    with pytest.raises(FileExistsError):
        Registry(domain, ID, "", "", hidden=False, group="")
    assert objects(domain) == [owned.name]


@pytest.mark.parametrize("when", ["before the lock", "in the middle"])
def test_a_registry_that_a_sweep_takes_while_it_is_made_is_made_again(
    domain: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    create, take = segment.create, liveness.take

    def swept_at_once(name: str, size: int, **options: Any) -> int:  # noqa: ANN401
        fd = create(name, size, **options)
        assert sweep(domain) == [name]
        return fd

    def taken_by_a_sweep(fd: int, byte: int) -> bool:
        monkeypatch.undo()
        with closing(os.fdopen(os.open(f"/proc/self/fd/{fd}", os.O_RDWR), "r+b")) as other:
            assert take(other.fileno(), byte)
            return take(fd, byte)

    if when == "in the middle":
        monkeypatch.setattr(liveness, "take", taken_by_a_sweep)
    else:
        monkeypatch.setattr(segment, "create", swept_at_once)
    with pytest.raises(FileExistsError, match="swept"):
        Registry(domain, ID, "", "", hidden=False, group="")
    monkeypatch.undo()
    for name in objects(domain):
        segment.remove(name)


def test_long_names_are_cut_not_spilled(domain: str) -> None:
    made = Registry(domain, ID, "n" * 100, "r" * 100, hidden=False, group="")
    peer = PeerRegistry(made.name)
    advert = read(peer)
    assert advert.name == "n" * 31
    assert advert.release == "r" * 15
    assert advert.domain == domain
    peer.close()
    made.close()


def test_a_registry_that_is_not_ready_is_told_from_one_of_another_layout(owned: Registry) -> None:
    header = wire_layout.registry_view(owned.mapping.view())
    header["magic"] = 0
    with pytest.raises(SegmentGone, match="starting"):
        PeerRegistry(owned.name)
    header["magic"] = MAGIC
    header["layout_id"] = 0x99
    with pytest.raises(SegmentMismatch, match="0x00000099"):
        PeerRegistry(owned.name)
    header["layout_id"] = wire_layout.LAYOUT_ID
    PeerRegistry(owned.name).close()


def test_a_registry_that_lies_about_its_length_is_read_as_far_as_it_goes(owned: Registry, peer: PeerRegistry) -> None:
    owned.add_receiver("a")
    wire_layout.registry_view(owned.mapping.view())["entries"] = 2**32 - 1
    assert [receiver.topic for receiver in read(peer).receivers] == ["a"]
    os.truncate(f"/dev/shm/{owned.name}", 100)
    contents = peer.read()
    assert contents is None or contents[1].receivers == ()
    os.truncate(f"/dev/shm/{owned.name}", wire_layout.registry_bytes(40))


# What a registry says that contradicts itself.


def entries(*rows: dict[str, Any]) -> tuple[np.void, np.ndarray[tuple[int], np.dtype[np.void]]]:
    """A header and entries."""
    made = np.zeros(len(rows), wire_layout.REGISTRY_ENTRY)
    for row, values in zip(made, rows, strict=True):
        for name, value in values.items():
            row[name] = value
    return np.zeros(1, wire_layout.REGISTRY_HEADER)[0], made


def test_a_source_without_its_session_is_left_out() -> None:
    header, rows = entries({"state": wire_layout.ENTRY_SOURCE, "local": 5, "name": b"t"})
    assert decode(header, rows, ID).sources == ()


def test_unknown_states_and_transports_are_no_error() -> None:
    header, rows = entries({"state": 99}, {"state": wire_layout.ENTRY_SESSION, "transport": 77, "session_id": 1})
    (session,) = decode(header, rows, ID).sessions
    assert session.source_string.startswith("?:")


def test_a_name_that_is_no_text_is_shown_all_the_same() -> None:
    header, rows = entries({"state": wire_layout.ENTRY_RECEIVER, "name": b"\xff\xfe"})
    (receiver,) = decode(header, rows, ID).receivers
    assert receiver.topic == "��"
    assert text(b"abc\0def") == "abc"
    assert object_names.REGISTRY == "g"


def test_a_registry_speaks_for_the_context_of_its_name_only(owned: Registry, peer: PeerRegistry) -> None:
    owned.add_session(SESSION)
    wire_layout.registry_view(owned.mapping.view())["context_id"] = ID + 1
    advert = read(peer)
    assert (advert.context_id, advert.sessions) == (ID, (SESSION,))
