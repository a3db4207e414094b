"""Congestion control of a session at its source: a path for each client, and the pace of the slowest.

The source asks each client several times in a round trip for an ACK. What was sent before the question is not on its
way any more when the answer comes, and NAKs show what was lost. All clients get the same datagrams, so the session goes
at the pace of the slowest path. Without a group a client may be behind the others for a while (`BehindClients`). What
is sent again takes from the pace of the group, or of the client that asked for it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from ipcbus.reliability.behind_clients import BehindClients
from ipcbus.reliability.congestion import UNLIMITED, CubicWindow, LossRate
from ipcbus.reliability.following import Following
from ipcbus.wire.udp_packets import CHARGE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ipcbus.reliability.clients import Client, Clients
    from ipcbus.reliability.congestion import Control
    from ipcbus.reliability.retransmit_window import RetransmitWindow

STEP_NS: Final = 1_000_000
"""Longest time for which a source sends at once what the pace allows."""
_LATE_NS: Final = 4_000_000
"""Time that a timer may be late without a loss of pace."""
_SECOND: Final = 1_000_000_000
_FIRST_UNIT: Final = 1400 + CHARGE
_FIRST_ROUND_TRIP_NS: Final = 100_000_000
_TIMEOUT_MIN_NS: Final = 200_000_000
_TIMEOUT_MAX_NS: Final = 2_000_000_000
_ASK_MIN_NS: Final = 5_000_000
_DOUBLED_MAX: Final = 5
_ASKS_MAX: Final = 64
SILENT_TIMES: Final = 3
"""Times that a client must be silent until a source-paced source does not wait for it any more."""
_AGAIN_MAX: Final = 4096
_COUNT_NS: Final = 100_000_000
"""Time over which it is counted what goes to a client."""
_NEWEST_SHARE: Final = 0.2
"""Part of the newest count in the mean."""
_KEPT_SHARE: Final = 0.97
"""Part of the highest mean that is left after another count."""
_GROUP_ASK_NS: Final = 1_000_000
"""Time between two questions to members of a group, beside those to the slowest."""


class Pacer:
    """Spreads what is sent over time, in steps of `STEP_NS` at most."""

    def __init__(self) -> None:
        """Starts without a limit."""
        self.rate = UNLIMITED
        """Bytes a second."""
        self._free_ns = 0
        self._waits = False

    def allows(self, now_ns: int) -> bool:
        """Returns whether a datagram may be sent now."""
        if self.rate >= UNLIMITED:
            return True
        if self._free_ns > now_ns + (0 if self._waits else STEP_NS):
            self._waits = True
            return False
        self._waits = False
        return True

    def spend(self, size: int, now_ns: int) -> None:
        """Takes note of bytes that are sent now."""
        if self.rate < UNLIMITED:
            self._free_ns = max(self._free_ns, now_ns - _LATE_NS) + size * _SECOND // max(1, self.rate)

    def next_ns(self, now_ns: int) -> int:
        """Returns the earliest time at which a datagram may be sent."""
        if self.rate >= UNLIMITED or self._free_ns <= now_ns + (0 if self._waits else STEP_NS):
            return now_ns
        return self._free_ns


class _Question(NamedTuple):
    lead: int
    datagrams: int
    sent: int
    asked_ns: int
    again: bool


class Path:
    """What is known of the way to one client."""

    def __init__(self, control: Control, lead: int, position: int) -> None:
        """Starts without anything on its way.

        Args:
            control: its congestion control.
            lead: the number of the next datagram.
            position: the bytes of all datagrams before.
        """
        self.control = control
        self.pacer = Pacer()
        """Spreads what goes to this client alone."""
        self.takes = 0.0
        """Bytes a second of new datagrams that have gone to the client lately, a mean."""
        self.took = 0.0
        """The highest such mean; it fades by a quarter in a second."""
        self._counted, self._counted_ns = position, 0
        self.position = position
        """The bytes of all datagrams that were sent to the client, while it is behind (`BehindClients`)."""
        self._repairs = self._repairs_count = 0
        """Bytes and number of datagrams that were sent again to this client."""
        self._gone = position
        """Of the bytes of datagrams and repairs, those that are not on their way any more."""
        self._recover, self._recover_sent = lead, position
        """Losses below this number, and of what was sent again before, are consequences of one that was counted."""
        self._questions: deque[_Question] = deque(maxlen=_ASKS_MAX)
        self._asked_ns, self._answered_ns = -_COUNT_NS, 0
        self._ask_at = position
        self.ask_again_ns = 0
        """The time at which to ask a client that is behind again: the question or the answer may be lost."""
        self._round_trip = self._deviation = 0.0
        self.timeouts = 0
        """Times that no answer came since the last one."""

    @property
    def limit(self) -> int:
        """The position up to which new datagrams may be sent."""
        return self._gone + self.control.window - self._repairs

    @property
    def ask_at(self) -> int:
        """The position at which to ask for the next answer."""
        return self._ask_at - self._repairs

    @property
    def is_asked(self) -> bool:
        """Whether an answer may come."""
        return bool(self._questions)

    @property
    def has_answered(self) -> bool:
        """Whether an answer has come."""
        return self._round_trip > 0

    @property
    def round_trip_ns(self) -> int:
        """The smoothed round trip."""
        return int(self._round_trip) or _FIRST_ROUND_TRIP_NS

    @property
    def answer_ns(self) -> int:
        """The time in which an answer is expected."""
        return int(self._round_trip + 4 * self._deviation) or _FIRST_ROUND_TRIP_NS

    @property
    def rate(self) -> int:
        """Bytes a second."""
        return self.control.rate(int(self._round_trip)) if self._round_trip else UNLIMITED

    @property
    def _usable(self) -> int:
        """The bytes that may be on their way in a round trip."""
        return min(self.control.window, self.rate * self.round_trip_ns // _SECOND)

    @property
    def silent_ns(self) -> int | None:
        """The time at which the client counts as silent; None while nothing was asked."""
        if not self._questions:
            return None
        heard_ns = max(self._questions[0].asked_ns, self._answered_ns)
        return heard_ns + min(max(self.answer_ns, _TIMEOUT_MIN_NS), _TIMEOUT_MAX_NS)

    def repaired(self, size: int) -> None:
        """Takes note of bytes that are sent again."""
        self._repairs += size
        self._repairs_count += 1

    def sent(self, position: int) -> int:
        """Returns the bytes of all datagrams and repairs so far."""
        return position + self._repairs

    def asked(self, lead: int, count: int, position: int, now_ns: int, spacing: int = 0) -> None:
        """Takes note that the client is asked for an ACK now.

        Args:
            lead: the number of the next datagram.
            count: the number of datagrams that were sent to all, also again.
            position: the bytes of these.
            now_ns: the time.
            spacing: the least number of bytes until it is asked again.
        """
        sent = self.sent(position)
        if not (self._questions or self.timeouts) and now_ns - self._asked_ns >= _COUNT_NS:
            self._counted, self._counted_ns = position, now_ns  # the source was idle, which says nothing of the path
        self._asked_ns = now_ns
        # Answers tell how far the source had sent: those to questions in between cannot be told apart.
        again = bool(self._questions) and self._questions[-1].lead == lead
        self._questions.append(_Question(lead, count + self._repairs_count, sent, now_ns, again))
        self._ask_at = sent + max(self.control.unit, self._usable // 4, spacing)
        self.ask_again_ns = now_ns + (max(self.answer_ns, _ASK_MIN_NS) << min(self.timeouts, _DOUBLED_MAX))

    def answered(self, lead: int, position: int, now_ns: int) -> bool:
        """Takes an ACK of the client, which knows all numbers below `lead`; returns whether it tells anything."""
        found = None
        while self._questions and self._questions[0].lead <= lead:
            found = self._questions.popleft()
            if found.lead == lead:
                break
        if found is None:
            return False
        self.timeouts, self._answered_ns = 0, now_ns
        again = found.again or (bool(self._questions) and self._questions[0].lead == found.lead)
        if not again or not self._round_trip:
            self._measure(now_ns - found.asked_ns)
        size = max(0, found.sent - self._gone)
        used = 2 * (self.sent(position) - self._gone) >= self._usable
        self._gone += size
        round_trip_ns = self.round_trip_ns if again else max(1000, now_ns - found.asked_ns)
        self.control.acknowledged(size, found.datagrams, now_ns, round_trip_ns, used=used)
        self.pacer.rate = self.rate
        if now_ns - self._counted_ns >= _COUNT_NS:
            self._count_taken(position, now_ns)
        return True

    def _count_taken(self, position: int, now_ns: int) -> None:
        """Takes note of the pace since it was called before: once after a silence, which says little of the path."""
        took = (position - self._counted) * _SECOND / (now_ns - self._counted_ns)
        self.takes += (took - self.takes) * (_NEWEST_SHARE if self.takes else 1)
        self.took = max(self.takes, self.took * _KEPT_SHARE)
        self._counted, self._counted_ns = position, now_ns

    def _measure(self, passed_ns: int) -> None:
        passed_ns = max(1000, passed_ns)
        if not self._round_trip:
            self._round_trip, self._deviation = passed_ns, passed_ns / 2
            return
        self._deviation += (abs(passed_ns - self._round_trip) - self._deviation) / 4
        self._round_trip += (passed_ns - self._round_trip) / 8

    def lost(self, numbers: Sequence[tuple[int, int]], lead: int, count: int, position: int, now_ns: int) -> bool:
        """Takes what a NAK asks for; returns whether a new loss is among it.

        Args:
            numbers: each number, with the bytes that had been sent when it was last sent again; -1 if it was not.
            lead: the number of the next datagram.
            count: the number of datagrams that were sent to all, also again.
            position: the bytes of these.
            now_ns: the time.
        """
        if not any(number >= self._recover or again >= self._recover_sent for number, again in numbers):
            return False
        self._recover, self._recover_sent = lead, self.sent(position)
        self.control.lost(count + self._repairs_count, now_ns)
        self.pacer.rate = self.rate
        return True

    def turn(self, now_ns: int) -> bool:
        """Returns whether the client has become silent."""
        due_ns = self.silent_ns
        if due_ns is None or now_ns < due_ns:
            return False
        self.timeouts += 1
        self._questions.clear()
        self._ask_at = 0
        self.control.silent()
        self.pacer.rate = self.rate
        return True


class Paths:
    """The paths of all clients of a session."""

    def __init__(
        self,
        window: RetransmitWindow,
        clients: Clients,
        *,
        multicast: bool,
        receiver_paced: bool,
        is_exempt: Callable[[Hashable], bool],
        following: Following | None = None,
    ) -> None:
        """Starts without paths.

        Args:
            window: the retransmit window of the source.
            clients: its clients.
            multicast: whether the session has a group.
            receiver_paced: whether the source waits for clients that are silent.
            is_exempt: whether the way to an address needs no congestion control.
            following: the clients that the source follows; None for the slowest.
        """
        self._window, self._clients = window, clients
        self._following = following or Following()
        self._multicast, self._receiver_paced, self._is_exempt = multicast, receiver_paced, is_exempt
        self.pacer = Pacer()
        """Spreads what goes to all."""
        self._unpaced = Pacer()
        self.behind = None if multicast else BehindClients(window, clients)
        """The clients that have yet to get what others have got; None with a group."""
        self.ask_at = UNLIMITED
        """The lowest position at which a client that is not behind is to be asked."""
        self._drops = 0
        self._unit = float(_FIRST_UNIT)
        self._repairs = self._repairs_count = 0
        """Bytes and number of datagrams that were sent again to a group."""
        self._again: OrderedDict[tuple[int, Hashable], tuple[int, int]] = OrderedDict()
        """When a datagram was sent again, and the bytes that had been sent by then."""
        self._changes = -1
        self._slowest: Path | None = None

    def admit(self, client: Client, now_ns: int) -> None:
        """Takes a client that begins a stay; its first ACK is the first answer."""
        if self._is_exempt(client.address):
            return
        unit = int(self._unit)
        control: Control = LossRate(unit) if self._multicast else CubicWindow(unit)
        window = self._window
        client.path, client.place = Path(control, window.lead, self._position), None
        client.path.asked(window.lead, self._count, self._position, now_ns)
        self._takes_less()
        self._renew()

    def sent(self, size: int) -> None:
        """Takes note of a new datagram, before the window gets it."""
        self._unit += (size + CHARGE - self._unit) / 64
        if self.behind is not None and self.behind.note(size + CHARGE, self.waits_for):
            self._renew()

    @property
    def _position(self) -> int:
        """The bytes that were sent to all."""
        return self._window.position + self._repairs

    @property
    def _count(self) -> int:
        """The number of datagrams that were sent to all."""
        return self._window.lead + self._repairs_count

    def pacer_of(self, to: Hashable) -> Pacer:
        """Returns what spreads datagrams that are sent again, to one client or to the group."""
        client = self._clients.get(to)
        if self._multicast:
            return self.pacer
        return client.path.pacer if client is not None and client.path is not None else self._unpaced

    def _place_of(self, client: Client, path: Path) -> tuple[int, int]:
        """Returns the number of the next datagram for a client, and the bytes that were sent to it."""
        if client.place is None:
            return self._window.lead, self._position
        return client.place, path.position

    def limit_of(self, client: Client) -> int:
        """Returns the position up to which the source may go although the way to a client takes less."""
        path = client.path
        if path is None or not self.waits_for(client):
            return UNLIMITED
        return path.limit if self.behind is None else self.behind.limit_of(client, path)

    def reach_of(self, client: Client) -> int:
        """Returns the position up to which the way to a client takes datagrams now; -1 if the source does not care."""
        if self.behind is None or client.path is None:
            return UNLIMITED
        return client.path.limit if self.waits_for(client) else -1

    def repaired(self, to: Hashable, number: int, size: int, now_ns: int) -> None:
        """Takes note of a datagram that is sent again, to one client or to the group."""
        client = self._clients.get(to)
        self._again.pop((number, to), None)
        if self._multicast:
            self._again[number, to] = now_ns, self._position
            self._repairs += size + CHARGE
            self._repairs_count += 1
        elif client is not None and client.path is not None:
            path = client.path
            self._again[number, to] = now_ns, path.sent(self._place_of(client, path)[1])
            path.repaired(size + CHARGE)
            self._takes_less()
            self.ask_at = min(self.ask_at, path.ask_at)
        if len(self._again) > _AGAIN_MAX:
            self._again.popitem(last=False)

    def _takes_less(self) -> None:
        if self.behind is not None:
            self.behind.look_again()

    def answered(self, client: Client, lead: int, now_ns: int) -> bool:
        """Takes an ACK of a client; returns whether it tells anything."""
        path = client.path
        if path is None or not path.answered(lead, self._place_of(client, path)[1], now_ns):
            return False
        path.control.unit = int(self._unit)
        self._changed(client, path)
        return True

    def lost(self, client: Client, numbers: Sequence[int], now_ns: int) -> bool:
        """Takes a NAK of a client; returns whether the source may send less now."""
        path = client.path
        if path is None:
            return False
        to = None if self._multicast else client.address
        listed = []
        for number in numbers:
            again_ns, sent = self._again.get((number, to), (now_ns, 0))
            # A NAK may have passed the repair on the way.
            listed.append((number, sent if now_ns - again_ns > path.answer_ns else -1))
        lead, position = self._place_of(client, path)
        if not path.lost(listed, lead, self._count, position, now_ns):
            return False
        self._takes_less()
        self._changed(client, path)
        return True

    def due(self, now_ns: int) -> list[Client]:
        """Returns the clients to ask for an ACK now."""
        found: list[Client] = []
        if self.behind is not None:
            found = self.behind.due(now_ns)
            if self._drops != self.behind.drops:
                self._drops, self.ask_at = self.behind.drops, 0
        if self._position >= self.ask_at:
            self.ask_at = UNLIMITED
            for client in self._clients.registered:
                path = client.path
                if path is None or client.place is not None:
                    continue
                if self._position >= path.ask_at:
                    found.append(client)
                else:
                    self.ask_at = min(self.ask_at, path.ask_at)
        for client in found:
            self.asked(client, now_ns)
            if client.place is None and client.path is not None:
                self.ask_at = min(self.ask_at, client.path.ask_at)
        return found

    def asked(self, client: Client, now_ns: int) -> None:
        """Takes note that a client is asked for an ACK now."""
        path = client.path
        if path is not None:
            spacing = 0
            if self._multicast and path is not self._slowest and self.pacer.rate < UNLIMITED:
                # A group may have very many members.
                spacing = self.pacer.rate * _GROUP_ASK_NS * len(self._clients.addresses) // _SECOND
            lead, position = self._place_of(client, path)
            path.asked(lead, self._count, position, now_ns, spacing)

    def turn(self, now_ns: int) -> bool:
        """Runs the timers; returns whether something has changed."""
        paths = [client.path for client in self._clients.registered if client.path is not None]
        changed = any([path.turn(now_ns) for path in paths])
        if changed:
            self._takes_less()
        if changed or self._changes != self._clients.changes:
            self._changes = self._clients.changes
            self._renew()
        return changed

    def next_ns(self, now_ns: int) -> int | None:
        """Returns the time at which to call `turn`, and to ask for the datagrams of clients that are behind."""
        times = [client.path.silent_ns for client in self._clients.registered if client.path is not None]
        if self.behind:
            times.append(self.behind.next_ns(now_ns))
        return min((time for time in times if time is not None), default=None)

    def waits_for(self, client: Client) -> bool:
        """Returns whether the source sends no more than the path of a client takes."""
        path = client.path
        if path is None or not self._following.includes(client):
            return False
        return self._receiver_paced or path.timeouts < SILENT_TIMES

    def _changed(self, client: Client, path: Path) -> None:
        if path is self._slowest or self._changes != self._clients.changes:
            self._changes = self._clients.changes
            self._renew()
        elif self._following.prefers(rate := self._rate_of(client, path), self.pacer.rate) and self.waits_for(client):
            self.pacer.rate, self._slowest = rate, path

    def _rate_of(self, client: Client, path: Path) -> int:
        """Returns the bytes a second at which the source may go as far as a client is concerned."""
        return path.rate if client.place is None or self.behind is None else self.behind.rate_of(path)

    def _renew(self) -> None:
        """Finds the slowest path anew."""
        rate, slowest, ask_at = self._following.worst, None, UNLIMITED
        for client in self._clients.registered:
            path = client.path
            if path is None:
                continue
            ask_at = min(ask_at, path.ask_at)
            if self.waits_for(client) and self._following.prefers(wanted := self._rate_of(client, path), rate):
                rate, slowest = wanted, path
        self.pacer.rate = rate if slowest is not None else UNLIMITED
        self._slowest, self.ask_at = slowest, ask_at
