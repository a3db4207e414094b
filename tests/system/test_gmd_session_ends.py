"""At the end of a session guaranteed messages come again from the area, and only the other ones are reported lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipcbus import MessageType
from tests.kit.bus import LBTIPC_SOURCE_PACED, LBTRU, Bus, Kind
from tests.kit.guaranteed import Named, held_up
from tests.system.test_gmd_agent import Agents, owner

if TYPE_CHECKING:
    from pathlib import Path

    from ipcbus import Message
    from tests.kit.peers import Peers

SMALL = {"transport_lbtipc_transmission_window_size": 131072}
COUNT = 3000


class Mixed(Named):
    """A named receiver that enters the topic numbers of messages without a guarantee, too."""

    def __init__(self, bus: Bus, **options: object) -> None:
        self.plain: list[tuple[str, int]] = []
        self.lost: list[tuple[str, int]] = []
        super().__init__(bus, **options)

    def _on_message(self, message: Message) -> None:
        numbers = range(message.first_sequence_number, message.sequence_number + 1)
        if message.type in (MessageType.UNRECOVERABLE_LOSS, MessageType.UNRECOVERABLE_LOSS_BURST):
            self.lost += [(message.source, number) for number in numbers]
        elif message.type is MessageType.DATA and not message.gmd_sequence_number:
            self.plain.append((message.source, message.sequence_number))
        else:
            super()._on_message(message)


@pytest.mark.parametrize("returns", ["sender", "agent"])
@pytest.mark.parametrize("kind", [LBTIPC_SOURCE_PACED, LBTRU], ids=lambda kind: str(kind.name))
def test_a_gap_at_the_end_of_a_session_is_filled_from_the_area(
    bus: Bus, peers: Peers, kind: Kind, returns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent = delivered + reported lost, and no guaranteed message is among the lost ones."""
    files: dict[str, object] = {"ipc_gmd_type": "file", "ipc_gmd_directory": str(tmp_path / "gmd")}
    options = SMALL if kind is LBTIPC_SOURCE_PACED else {}
    monkeypatch.setenv("LBTRU_LOSS_RATE", "20")
    named = Mixed(bus, **files)
    sender = owner(peers, files, kind, **options)
    sender.do("expected", topic="t", name="receiver")
    plain = sender.do("send_mixed", topic="t", count=5)
    named.until(5)
    free = held_up(named, 6)
    plain += sender.do("send_mixed", topic="t", count=COUNT)
    source = sender.do("source_string", topic="t")
    sender.kill()
    free.set()
    agents = Agents(tmp_path / "gmd")
    try:
        if returns == "agent":
            agents.start("--once")
        else:
            owner(peers, files, kind, **options)
        named.until(5 + COUNT)
        bus.until(lambda: len(named.plain) + len(named.lost) >= len(plain), f"{len(plain)} plain messages or losses")
    finally:
        agents.clear()
    named.ledger.balanced(1, 5 + COUNT)
    assert sorted(named.plain + named.lost) == [(source, number) for number in plain]
    assert named.lost
