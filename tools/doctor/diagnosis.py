"""What `ipcbus doctor` found, as it prints it with --json."""

from __future__ import annotations

from dataclasses import dataclass

OK = "ok"
FINDING = "finding"
UNKNOWN = "unknown"

CLEAN = "clean"
FINDINGS = "findings"
NOT_CHECKABLE = "not_checkable"
EXIT_CODES = {CLEAN: 0, FINDINGS: 1, NOT_CHECKABLE: 2}


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the host.

    Attributes:
        name: what was checked.
        state: `ok`, `finding`, or `unknown` where it could not be checked.
        found: what is so, with the values.
        cure: what to do about a finding; empty for what is ok.
    """

    name: str
    state: str
    found: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a dead context left in shared memory.

    Attributes:
        domain: its domain; the tag in the names of the objects where the name is not known.
        context_id: number of the context.
        uid: owner of the objects.
        user: name of the owner, or the number again.
        objects: how many objects there were.
        bytes: memory behind them.
        age_seconds: how long ago the first of them was made.
        reclaimed: whether this call removed all of them.
        reason: why they are still there, after --reclaim; empty before.
        cure: what removes them; empty once they are reclaimed.
    """

    domain: str
    context_id: int
    uid: int
    user: str
    objects: int
    bytes: int
    age_seconds: float
    reclaimed: bool
    reason: str
    cure: str


@dataclass(frozen=True, slots=True)
class OtherLayout:
    """A live context of a version of ipcbus with another layout of shared memory.

    Attributes:
        domain: its domain; the tag in the names of the objects where the name is not known.
        context_id: number of the context.
        pid: its process.
        uid: its user.
        user: name of the user, or the number again.
        release: its version of ipcbus.
        layout_id: its layout.
        sessions: how many sessions it sends on, none of which contexts of this version can join.
        cure: what to do.
    """

    domain: str
    context_id: int
    pid: int
    uid: int
    user: str
    release: str
    layout_id: int
    sessions: int
    cure: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A context or session that this user may not read, or that is damaged.

    Attributes:
        domain: its domain; the tag in the names of the objects where the name is not known.
        context_id: number of the context.
        source: source string of the session; empty where it is the context itself.
        pid: its process; 0 when unknown.
        uid: its user.
        user: name of the user, or the number again.
        reason: why it cannot be read.
        cure: what to do.
    """

    domain: str
    context_id: int
    source: str
    pid: int
    uid: int
    user: str
    reason: str
    cure: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `ipcbus doctor` found on this host.

    Attributes:
        result: `clean`, `findings`, or `not_checkable` where nothing was found but not all could be checked.
        exit_code: 0, 1 or 2, in this order.
        host: name of the host.
        kernel: version of the kernel.
        python: version of Python.
        release: version of ipcbus.
        layout_id: layout of shared memory of this version.
        user: who asked.
        contexts: live contexts in the domains that were looked at.
        domains: names of the domains in which there are live contexts or leftovers.
        checks: checks of the host.
        leftovers: what dead contexts left, the largest first.
        other_layouts: live contexts of other layouts.
        unreadable: live contexts and sessions that cannot be read.
        reclaimed_objects: objects that this call removed.
        reclaimed_bytes: memory behind them.
    """

    result: str
    exit_code: int
    host: str
    kernel: str
    python: str
    release: str
    layout_id: int
    user: str
    contexts: int
    domains: tuple[str, ...]
    checks: tuple[Check, ...]
    leftovers: tuple[Leftover, ...]
    other_layouts: tuple[OtherLayout, ...]
    unreadable: tuple[Unreadable, ...]
    reclaimed_objects: int
    reclaimed_bytes: int


def result_of(checks: tuple[Check, ...], *found: tuple[object, ...]) -> str:
    """Returns the result of all checks and of the lists of what was found beside them."""
    states = {check.state for check in checks}
    if FINDING in states or any(found):
        return FINDINGS
    return NOT_CHECKABLE if UNKNOWN in states else CLEAN
