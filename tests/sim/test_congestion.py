"""Congestion control in virtual time: a slow link with a queue, random loss, jitter and cuts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

import pytest

from ipcbus.reliability import catch_up
from ipcbus.reliability.send_state import SendSettings
from ipcbus.wire.udp_packets import CHARGE
from tests.sim.repair_world import BEGINS, MS, OVERHEAD, SECOND, Link, Member, World

SIZE = 1400
LINK_RATE, QUEUE = 4_000_000, 64
SECONDS = 4
BOTH = pytest.mark.parametrize("multicast", [False, True], ids=["LBT-RU", "LBT-RM"])
PACINGS = pytest.mark.parametrize(
    "receiver_paced", [True, pytest.param(False, marks=pytest.mark.long)], ids=["receiver", "source"]
)


def settings(*, receiver_paced: bool = True) -> SendSettings:
    """Nothing but congestion control limits the source."""
    return SendSettings(data_rate=0, retransmit_rate=0, receiver_paced=receiver_paced, congestion_control=True)


def offer(world: World, rate: int, ns: int) -> None:
    """Offers datagrams at a rate, in bits a second; those that would have to wait are not sent."""
    gap, end = SIZE * 8 * SECOND // rate, world.now + ns
    while world.now < end:
        if not world.source.blocked:
            world.send_one()
        world.rest(gap)


def longest_stall(world: World, begin: int, first: int = 0) -> int:
    """The longest time for which a receiver, from the given one on, that delivers in order got nothing."""
    longest = 0
    for member in world.members[first:]:
        last = begin
        for number in sorted(member.got):
            longest = max(longest, member.got[number] - last)
            last = max(last, member.got[number])
    return longest


@BOTH
@PACINGS
def test_twice_what_a_link_takes_fills_it_with_new_data(multicast: bool, receiver_paced: bool) -> None:
    link = Link(LINK_RATE, QUEUE)
    sending = settings(receiver_paced=receiver_paced)
    world = World(1, multicast=multicast, receivers=3, size=SIZE, sending=sending, link=link)
    offer(world, 2 * LINK_RATE, SECONDS * SECOND)
    got = [len(member.got) for member in world.members]
    copies = 1 if multicast else 3
    carried = copies * sum(got) / 3 * (SIZE + OVERHEAD) * 8
    assert carried >= 0.85 * LINK_RATE * SECONDS
    assert sum(got) ** 2 / (3 * sum(each**2 for each in got)) >= 0.9
    world.rest(5 * SECOND)
    world.check(world.source.lead)


@BOTH
@pytest.mark.parametrize("receivers", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "loss", [pytest.param(0.01, marks=pytest.mark.long), 0.05, pytest.param(0.2, marks=pytest.mark.long)]
)
def test_random_loss_neither_loses_messages_nor_stops_them(multicast: bool, receivers: int, loss: float) -> None:
    world = World(2, multicast=multicast, receivers=receivers, size=SIZE, loss=loss, sending=settings())
    begin = world.now
    offer(world, 2 * LINK_RATE, SECONDS * SECOND)
    world.rest(10 * SECOND)
    world.check(world.source.lead)
    # Random loss is taken for congestion, as TCP takes it: 20 % leaves some 0.7 Mbit/s.
    assert world.source.lead * SIZE * 8 > {0.01: 3_000_000, 0.05: 1_000_000, 0.2: 300_000}[loss] * SECONDS
    stall_max = {0.01: 200, 0.05: 300, 0.2: 4000}[loss] * MS
    assert longest_stall(world, begin) < stall_max * (1 if receivers == 1 else 2)


@pytest.mark.parametrize("multicast", [False, pytest.param(True, marks=pytest.mark.long)], ids=["LBT-RU", "LBT-RM"])
def test_jitter_is_not_taken_for_loss(multicast: bool) -> None:
    world = World(3, multicast=multicast, size=SIZE, jitter=5 * MS, sending=settings())
    offer(world, 2 * LINK_RATE, 3 * SECOND)
    world.rest(SECOND)
    world.check(world.source.lead)
    assert world.source.lead * SIZE * 8 > 1.7 * LINK_RATE * 3
    assert world.source.counts.rxs_sent < 0.01 * world.source.lead


@BOTH
@pytest.mark.parametrize("seconds", [1, pytest.param(5, marks=pytest.mark.long)])
def test_it_goes_on_after_a_cut(multicast: bool, seconds: int) -> None:
    world = World(4, multicast=multicast, receivers=2, size=SIZE, sending=settings(), link=Link(LINK_RATE, QUEUE))
    offer(world, 2 * LINK_RATE, SECOND)
    world.drops = lambda packet, member, down: True
    offer(world, 2 * LINK_RATE, seconds * SECOND)
    lead = world.source.lead
    world.drops = lambda packet, member, down: False
    offer(world, 2 * LINK_RATE, 2 * seconds * SECOND)
    # All that was sent before has come, and new data fills the link again.
    assert world.complete_at(lead) - world.now < 0
    assert world.source.lead - lead > 0.4 * 2 * seconds * LINK_RATE / (8 * (SIZE + OVERHEAD)) / (1 if multicast else 2)
    world.rest(5 * SECOND)
    world.check(world.source.lead)


@BOTH
@pytest.mark.parametrize("seconds", [12, pytest.param(60, marks=pytest.mark.long)])
def test_receivers_that_were_let_go_catch_up_at_the_pace_of_the_link(
    multicast: bool, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seconds == 12:  # as long a way behind, for so short a time
        monkeypatch.setattr(catch_up, "MISSING_MAX", 256)
    link = Link(2 * LINK_RATE, QUEUE)
    world = World(8, multicast=multicast, receivers=2, size=SIZE, sending=settings(), link=link)
    offer(world, LINK_RATE // 2, SECOND)
    world.drops = lambda packet, member, down: True
    offer(world, LINK_RATE // 2, seconds * SECOND)
    assert not world.source.clients
    lead = world.source.lead
    world.drops = lambda packet, member, down: False
    world.begin_again()
    offer(world, LINK_RATE // 2, seconds * SECOND)
    assert world.complete_at(lead) <= world.now
    copies = 1 if multicast else 2
    assert world.source.counts.rxs_sent < 1.5 * copies * lead
    world.rest(5 * SECOND)
    world.check(world.source.lead)


def test_a_silent_client_does_not_hold_a_source_paced_session_up() -> None:
    world = World(5, receivers=3, size=SIZE, sending=settings(receiver_paced=False), link=Link(LINK_RATE, QUEUE))
    offer(world, LINK_RATE, SECOND)
    gone = world.members[0]
    world.drops = lambda packet, member, down: member is gone
    lead = world.source.lead
    offer(world, LINK_RATE, 5 * SECOND)
    assert world.source.lead - lead > 300  # half of its share of the link


@pytest.mark.parametrize(
    ("follows", "tag", "sends"), [("slowest", "", 10), ("tagged", "here 1", 20), ("fastest", "", 30)]
)
def test_a_group_waits_for_room_at_those_that_it_follows(follows: str, tag: str, sends: int) -> None:
    sending = SendSettings(data_rate=0, retransmit_rate=0, follows=follows, tag=tag)
    world = World(6, multicast=True, receivers=3, sending=sending)
    for client in world.source.clients:
        client.limit = world.source.window.position + 10 * (client.context_id + 1) * (world.size + CHARGE)
    while not world.source.blocked:
        world.send_one()
    assert world.source.lead == sends
    assert world.source.slowest is world.source.clients[sends // 10 - 1]


def test_a_group_whose_tag_nobody_has_waits_for_nobody() -> None:
    sending = SendSettings(data_rate=0, retransmit_rate=0, follows="tagged", tag="elsewhere")
    world = World(6, multicast=True, receivers=2, sending=sending)
    for client in world.source.clients:
        client.limit = world.source.window.position
    for _ in range(1000):
        world.send_one()
    assert not world.source.blocked


def loses(share: float, chance: Random, lossy: Member, packet: bytes, member: Member, down: bool) -> bool:
    """What one member sends and receives."""
    del packet, down
    return member is lossy and chance.random() < share


@pytest.mark.parametrize(
    ("loss", "seconds", "seed", "begins"),
    [
        # Just after the clients have joined the source knows nothing of their ways, and after a time of silence little.
        *[(0.2, SECONDS, seed, begins) for seed in (1, 4) for begins in (60 * MS, BEGINS)],
        *[pytest.param(loss, 20, seed, BEGINS, marks=pytest.mark.long) for loss in (0.05, 0.2) for seed in (2, 3)],
        *[pytest.param(0.2, 2, seed, 60 * MS, marks=pytest.mark.long) for seed in range(5, 105)],
    ],
)
@PACINGS
@BOTH
def test_others_go_on_beside_a_client_that_loses_much(
    loss: float, seconds: int, seed: int, begins: int, receiver_paced: bool, multicast: bool
) -> None:
    sending = settings(receiver_paced=receiver_paced)
    world = World(seed, multicast=multicast, receivers=3, size=SIZE, sending=sending, begins=begins)
    lossy, *others = world.members
    world.drops = partial(loses, loss, Random(seed), lossy)
    begin = world.now
    offer(world, 2 * LINK_RATE, seconds * SECOND)
    # They have what the mean pace of the lossy one allows, without its gaps, and it is not far behind.
    assert longest_stall(world, begin, first=1) <= 50 * MS
    assert world.source.lead * SIZE * 8 > {0.05: 2_500_000, 0.2: 1_000_000}[loss] * seconds
    assert world.source.lead - len(lossy.got) < 250
    assert multicast or [each.repairs for each in others] == [0, 0]
    world.rest(5 * SECOND)
    world.check(world.source.lead)
    assert not world.source.is_behind


def test_others_soon_wait_for_a_client_that_is_cut_off_for_a_while() -> None:
    world = World(9, receivers=3, size=SIZE, sending=settings())
    begin, gone = world.now, world.members[0]
    offer(world, 2 * LINK_RATE, SECOND)
    world.drops = lambda packet, member, down: member is gone
    offer(world, 2 * LINK_RATE, 6 * SECOND)
    unsent = world.source.lead - len(gone.got)
    world.drops = lambda packet, member, down: False
    offer(world, 2 * LINK_RATE, SECOND)
    # As much as its way took in a second waits for it in the window; that is measured in parts of a tenth of a second.
    assert 0.5 < unsent / (2 * LINK_RATE / 8 / SIZE) <= 1.05
    assert longest_stall(world, begin, first=1) < 5 * SECOND
    world.rest(5 * SECOND)
    world.check(world.source.lead)


def test_a_group_goes_at_the_pace_of_those_that_it_follows() -> None:
    """One of two members loses a fifth."""
    sent = {}
    for follows, tag in (("slowest", ""), ("tagged", "here 1"), ("fastest", "")):
        sending = replace(settings(), follows=follows, tag=tag)
        world = World(7, multicast=True, receivers=2, size=SIZE, sending=sending)
        world.drops = partial(loses, 0.2, Random(7), world.members[0])
        offer(world, 2 * LINK_RATE, SECOND)
        sent[follows] = world.source.lead
        world.drops = lambda packet, member, down: False
        world.rest(3 * SECOND)
        world.check(world.source.lead)
    assert sent["slowest"] * 2 < sent["tagged"] == sent["fastest"]
