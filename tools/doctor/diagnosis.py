"""The result of `ipcbus doctor`, in the form of --json."""

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
        name: the name of the check.
        state: `ok`, `finding`, or `unknown` when it could not be checked.
        found: the result, with the values.
        cure: what to do about a finding; empty when the state is `ok`.
    """

    name: str
    state: str
    found: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """The objects that a dead context left in shared memory.

    Attributes:
        domain: the context's domain; the tag in the names of the objects if the name is not known.
        context_id: number of the context.
        uid: owner of the objects.
        user: name of the owner, or the number again.
        objects: number of objects.
        bytes: memory of the objects.
        age_seconds: age of the oldest object.
        reclaimed: whether this call removed all objects.
        reason: why --reclaim has not removed all objects; empty without --reclaim.
        cure: what removes the objects; empty when they are reclaimed.
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
        domain: the context's domain; the tag in the names of its objects if the name is not known.
        context_id: number of the context.
        pid: the context's process.
        uid: the user of the process.
        user: name of the user, or the number again.
        release: the version of ipcbus that the process runs.
        layout_id: the layout of that version.
        sessions: number of its sessions; contexts of this version cannot join them.
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
        domain: the context's domain; the tag in the names of its objects if the name is not known.
        context_id: number of the context.
        source: source string of the session; empty if the context itself cannot be read.
        pid: the context's process; 0 when unknown.
        uid: the user of the process.
        user: name of the user, or the number again.
        reason: why the context or session cannot be read.
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
    """The result of `ipcbus doctor` on this host.

    Attributes:
        result: `clean`, `findings`, or `not_checkable` if there is no finding but not all could be checked.
        exit_code: 0, 1 or 2, in this order.
        host: name of the host.
        kernel: version of the kernel.
        python: version of Python.
        release: version of ipcbus.
        layout_id: layout of shared memory of this version.
        user: the user who ran the command.
        contexts: number of live contexts in the checked domains.
        domains: names of the domains that have live contexts or leftovers.
        checks: checks of the host.
        leftovers: the objects of dead contexts, the largest first.
        other_layouts: live contexts of other layouts.
        unreadable: live contexts and sessions that cannot be read.
        reclaimed_objects: number of objects that this call removed.
        reclaimed_bytes: memory of these objects.
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
    """Returns the result of all checks and of the lists of findings on the bus."""
    states = {check.state for check in checks}
    if FINDING in states or any(found):
        return FINDINGS
    return NOT_CHECKABLE if UNKNOWN in states else CLEAN
