from __future__ import annotations

from ipcbus.gmd.held_messages import HeldMessages, LiveMessage, Loss


def test_what_does_not_fit_is_a_loss_until_it_comes_again() -> None:
    held = HeldMessages(messages_max=2, bytes_max=100)
    best, guaranteed = LiveMessage(0, 4, 4, 10, None), LiveMessage(7, 5, 6, 10, None)
    assert held.add(best)
    held.add_loss(3, 3)
    assert held.add(guaranteed)
    assert held.first_number == 7
    assert held.bytes == 20
    assert not held.add(LiveMessage(8, 7, 9, 10, None))
    held.add_loss(10, 10)
    held.cover(8, 9)
    assert list(held.pop()) == [best]
    assert held.front is None
    assert list(held.pop()) == [Loss(3, 3)]
    assert list(held.pop()) == [guaranteed]
    assert held.first_number == held.bytes == 0
    assert list(held.pop()) == [Loss(7, 7), Loss(10, 10)]
    assert len(held) == 0
    assert not held.add(LiveMessage(9, 1, 1, 101, None))
