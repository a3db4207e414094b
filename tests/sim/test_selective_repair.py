"""Repair while live traffic goes on, in virtual time: loss, bursts, cuts, jitter, and one client that loses much.

Sessions of some thousand datagrams; with a hundred thousand they are `long`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from ipcbus.reliability.send_state import SendSettings
from tests.sim.repair_world import BEGINS, MS, SECOND, Member, World, is_nak, is_new

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = [2_500, pytest.param(100_000, marks=pytest.mark.long)]
BOTH = pytest.mark.parametrize("multicast", [False, True], ids=["LBT-RU", "LBT-RM"])
NETWORK = SendSettings(data_rate=10_000_000, retransmit_rate=5_000_000)
"""The limits that hold over a network."""
LINK = SECOND * 1400 * 8 // 5_700_000
"""The time between two datagrams of 1,400 bytes at 5.7 Mbit/s."""


def loses(first: int, end: int) -> Callable[[bytes, Member, bool], bool]:
    """Loses the first transmission of the datagrams from `first` to below `end`."""

    def drops(packet: bytes, member: Member, down: bool) -> bool:
        del member
        return down and is_new(packet) and first <= int.from_bytes(packet[8:16], "big") < end

    return drops


@BOTH
@pytest.mark.parametrize("receivers", [1, 3])
@pytest.mark.parametrize("loss", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("datagrams", SIZES)
def test_nothing_is_lost_while_the_source_holds_it(
    multicast: bool, receivers: int, loss: float, datagrams: int
) -> None:
    world = World(1, multicast=multicast, receivers=receivers, loss=loss)
    world.send(datagrams)
    world.rest(10 * SECOND)
    world.check(datagrams)
    # A repair and its NAK are lost as often as other packets; on LBT-RM each is for all.
    needed = sum(len(each.got) for each in world.members) * loss / (1 - loss)
    assert world.source.counts.rxs_sent < 1.5 * needed


@BOTH
@pytest.mark.parametrize("burst", [300, 5_000])
def test_a_burst_is_repaired_while_live_traffic_goes_on(multicast: bool, burst: int) -> None:
    world = World(2, multicast=multicast, receivers=1)
    world.drops = loses(1000, 1000 + burst)
    world.send(1000 + burst + 4000)
    found = world.members[0]
    back = found.got[1000 + burst]  # the first datagram after the burst
    assert max(found.got[number] for number in range(1000, 1000 + burst)) - back < SECOND
    # Live datagrams are not held up, and nothing comes twice.
    live = [found.got[number] for number in range(1000 + burst, world.source.lead - 50)]
    assert all(later - earlier <= world.gap for earlier, later in itertools.pairwise(live))
    assert world.source.counts.rxs_sent == burst
    world.rest(SECOND)
    world.check(1000 + burst + 4000)


@BOTH
def test_live_data_comes_while_no_nak_does(multicast: bool) -> None:
    world = World(3, multicast=multicast)
    burst = loses(1000, 1300)
    world.drops = lambda packet, member, down: burst(packet, member, down) or is_nak(packet)
    world.send(6000)
    found = world.members[0]
    under_way = world.delay // world.gap - 1
    assert (found.end.missing, len(found.got)) == (300, 6000 - 300 - under_way)
    world.drops = lambda packet, member, down: False
    world.rest(SECOND)
    world.check(6000)


@BOTH
@pytest.mark.parametrize("seconds", [1, 5])
def test_a_cut_is_repaired_within_twice_its_length(multicast: bool, seconds: int) -> None:
    world = World(4, multicast=multicast, gap=LINK, size=1400, sending=NETWORK)
    world.send(200)
    world.drops = lambda packet, member, down: True
    cut = seconds * SECOND // LINK
    world.send(cut)
    world.drops = lambda packet, member, down: False
    over = world.now
    world.send(2 * cut + 100)
    missed = 200 + cut
    assert world.complete_at(missed) - over < 2 * seconds * SECOND
    world.rest(SECOND)
    world.check(missed + 2 * cut + 100)
    assert world.source.counts.rxs_sent < 1.1 * (cut + 10)


@pytest.mark.parametrize("datagrams", SIZES)
@pytest.mark.parametrize("delay", [MS // 10, 10 * MS])
def test_jitter_without_loss_has_almost_nothing_sent_again(delay: int, datagrams: int) -> None:
    world = World(5, delay=delay, jitter=5 * MS)
    world.send(datagrams)
    world.rest(SECOND)
    world.check(datagrams)
    assert world.source.counts.rxs_sent < 0.01 * datagrams


def test_the_healthy_see_no_repair_of_one_that_loses_much() -> None:
    world = World(6, receivers=3)
    chance = world.random.random
    world.drops = lambda packet, member, down: member is world.members[0] and chance() < 0.2
    world.send(4000)
    world.rest(5 * SECOND)
    world.check(4000)
    lossy, *healthy = world.members
    assert lossy.repairs > 700
    assert [each.repairs for each in healthy] == [0, 0]
    for each in healthy:
        assert max(each.got[number] for number in range(4000)) <= BEGINS + 4000 * world.gap + world.delay


@BOTH
def test_what_the_source_does_not_hold_any_more_is_given_up_at_once(multicast: bool) -> None:
    window = SendSettings(data_rate=0, retransmit_rate=0, window_size=100 * 500, receiver_paced=False)
    world = World(7, multicast=multicast, sending=window)
    world.drops = loses(100, 2000)
    world.send(2600)
    world.rest(SECOND)
    (found,) = world.members
    assert found.end.missing == 0
    assert found.end.counts.unrecovered_txw == found.unrecovered > 1000
    assert len(found.got) + found.unrecovered == 2600


@pytest.mark.parametrize("multicast", [False, pytest.param(True, marks=pytest.mark.long)], ids=["LBT-RU", "LBT-RM"])
def test_more_than_may_be_remembered_is_repaired_too(multicast: bool) -> None:
    """A receiver that misses most of the window gets it in order, and what comes meanwhile waits for it."""
    world = World(8, multicast=multicast, gap=MS // 50, size=20)
    world.send(10)
    world.rest(SECOND)
    world.drops = loses(10, 40_000)
    world.send(40_100)
    world.drops = lambda packet, member, down: False
    world.gap = SECOND // 2000
    world.send(1000)
    world.rest(8 * SECOND)
    world.check(41_110)


@BOTH
def test_what_comes_before_a_receiver_is_registered_is_not_reported_lost(multicast: bool) -> None:
    sending = SendSettings(data_rate=0, retransmit_rate=0, drop_bytes=10_000)
    world = World(9, multicast=multicast, loss=0.1, sending=sending)
    world.send(200)
    newcomer = world.join()
    world.drops = lambda packet, member, down: member is newcomer and not down
    world.send(2000)  # what the other receiver has got has left the window
    world.drops = lambda packet, member, down: False
    world.send(2000)
    world.rest(5 * SECOND)
    assert newcomer.unrecovered == 0
    assert sorted(newcomer.got) == list(range(min(newcomer.got), world.source.lead))
    assert min(newcomer.got) > 2000


def test_a_group_is_received_without_being_registered() -> None:
    world = World(10, multicast=True)
    newcomer = world.join()
    world.drops = lambda packet, member, down: member is newcomer and not down
    world.send(30_000)
    world.rest(SECOND)
    begins = min(newcomer.got)
    assert newcomer.got[begins] - BEGINS < 11 * SECOND
    assert sorted(newcomer.got) == list(range(begins, world.source.lead))
