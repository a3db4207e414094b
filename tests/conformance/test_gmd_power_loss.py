"""A power loss takes messages that were not synced: new messages get new numbers, and nothing holds them up."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from ipcbus.gmd.journal_segments import SegmentHead
from ipcbus.storage.files import Disk
from tests.kit.bus import LBTIPC, LBTRU, Bus
from tests.kit.guaranteed import Named, acknowledged, expected, send, source

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus import Message

pytestmark = [
    pytest.mark.parametrize("kind", [LBTIPC, LBTRU], ids=lambda kind: str(kind.name)),
    pytest.mark.parametrize("mode", ["embedded"]),
]


def lose_power(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes from the newest segment what durability `process` has not synced; the host starts again."""
    newest = max(files.glob("*.gmd"))
    head = SegmentHead.unpack(newest.read_bytes()[:64])
    assert head is not None
    with newest.open("r+b") as segment:
        segment.truncate(head.checkpoint_end)
    monkeypatch.setattr(Disk, "boot_id", lambda self: b"another boot id.")


@pytest.mark.parametrize("durability", ["process", "group"])
@pytest.mark.parametrize("stays", [False, True], ids=["new receiver", "same receiver"])
def test_no_message_counts_as_another_one(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str, *, stays: bool
) -> None:
    files: dict[str, object] = {"ipc_gmd_type": "file", "ipc_gmd_directory": str(tmp_path / "gmd")}
    seen: dict[tuple[str | None, int, int], bytes] = {}
    doubled: list[int] = []

    def note(message: Message) -> None:
        identity = (message.gmd_sender, message.gmd_incarnation, message.gmd_sequence_number)
        if identity[2]:
            doubled.extend([identity[2]] * (seen.setdefault(identity, bytes(message.data)) != message.data))
        named.ledger.enter(message)

    named = Named(bus, **files)
    named.receiver.close()
    named.receiver = named.context.receiver("t", note, gmd_name="receiver", **files)
    sending = source(bus, gmd_durability=durability, **files)
    expected(bus, sending, "receiver")
    send(bus, sending, 30)
    named.until(30)
    acknowledged(bus, sending)
    area = next((tmp_path / "gmd").glob("sender/*/source"))
    shutil.copytree(area, tmp_path / "before")
    if not stays:
        named.receiver.close()
    sending.close()
    shutil.rmtree(area)
    shutil.copytree(tmp_path / "before", area)
    lose_power(area, monkeypatch)

    again = source(bus, gmd_durability=durability, **files)
    assert again.gmd_sequence_number >= 30
    if not stays:
        named.receiver = named.context.receiver("t", note, gmd_name="receiver", **files)
    expected(bus, again, "receiver")
    first = again.gmd_sequence_number + 1
    send(bus, again, 30)
    named.until(60)
    acknowledged(bus, again)
    assert (doubled, named.ledger.lost) == ([], 0)
    assert named.ledger.numbers == [*range(1, 31), *range(first, first + 30)]
    assert len(seen) == 60
