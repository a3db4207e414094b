"""`ipcbus doctor`: checks this host and the bus on it, and removes what dead processes left behind."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

import click

import ipcbus
from ipcbus_tools.common import (
    age,
    config_check_option,
    domain_option,
    json_option,
    output,
    plural,
    print_json,
    safe,
    size,
)
from ipcbus_tools.doctor.diagnosis import (
    EXIT_CODES,
    FINDING,
    NOT_CHECKABLE,
    OK,
    UNKNOWN,
    Check,
    Diagnosis,
    result_of,
)
from ipcbus_tools.render.text_tables import Row, show_table

if TYPE_CHECKING:
    from rich.console import Console

    from ipcbus_tools.doctor.diagnosis import Leftover, OtherLayout, Unreadable

_STYLES = {OK: "green", FINDING: "bold red", UNKNOWN: "yellow"}


@click.command("doctor")
@click.option(
    "--reclaim", is_flag=True, help="Remove what dead contexts left in shared memory; live contexts are not touched."
)
@domain_option("Check the bus in this domain only; may be repeated (default: every domain).", multiple=True)
@config_check_option
@json_option
@click.pass_context
def command(ctx: click.Context, reclaim: bool, domain: tuple[str, ...], as_json: bool) -> None:
    """Checks this host and the bus on it, and names a cure for each finding.

    \b
    What it checks:
      the host   /dev/shm, log-out (RemoveIPC), limits of files, memory locks and
                 processes, processors beside threads that spin, the clock, huge
                 pages, features of the kernel, Java where pyspark is installed
      the bus    what dead processes left behind, by domain, owner, age and size;
                 live contexts of other layouts; what cannot be read, and why

    It opens no context, takes no lock, and does not disturb live processes.

    --reclaim removes the objects of dead contexts, in every domain unless --domain names some. A context is dead when
    the system has released its lock. The process id does not matter: a process that is stopped, or runs in another
    container, is alive. Users can remove their own objects, root can remove all. It is safe to run --reclaim while
    other processes use the bus, and twice at a time.

    \b
    Exit codes:
      0  all is well
      1  there is a finding, or something is left after --reclaim
      2  there is no finding, but something could not be checked

    \b
    Examples:
      ipcbus doctor
      ipcbus doctor --reclaim
      ipcbus doctor --json | jq '.checks[] | select(.state != "ok")'
      sudo ipcbus doctor --reclaim --domain trading
    """
    found = diagnose(domain, reclaim=reclaim)
    if as_json:
        print_json(found)
    else:
        _show(output(), found, domain, reclaim=reclaim)
    ctx.exit(found.exit_code)


def diagnose(domains: tuple[str, ...], *, reclaim: bool) -> Diagnosis:
    """Runs all checks.

    Args:
        domains: names of the domains whose contexts and leftovers are checked; empty means all.
        reclaim: also removes leftovers.
    """
    from ipcbus.stats.processes import user_name
    from ipcbus.wire.wire_layout import LAYOUT_ID
    from ipcbus_tools.doctor import bus_checks, host_checks, kernel_checks

    checks: tuple[Check, ...] = ()
    try:
        found = bus_checks.find_objects(domains)
    except OSError as error:
        found = ()
        cure = "mount a tmpfs there that all users may read and write: mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
        checks = (Check("objects in /dev/shm", UNKNOWN, f"{error.filename}: {error.strerror}", cure),)
    # This comes first, so that the check of shared memory shows what is left afterwards.
    leftovers, objects, freed = bus_checks.dead_leftovers(found, reclaim=reclaim)
    live = bus_checks.live_processes(found)
    checks = (
        *host_checks.check_host(host_checks.Host(live=live)),
        *kernel_checks.check_kernel(),
        kernel_checks.java(),
        *checks,
    )
    others, unreadable = bus_checks.other_layouts(found), bus_checks.unreadable(found)
    result = result_of(checks, tuple(each for each in leftovers if not each.reclaimed), others, unreadable)
    return Diagnosis(
        result=result,
        exit_code=EXIT_CODES[result],
        host=platform.node(),
        kernel=platform.release(),
        python=platform.python_version(),
        release=ipcbus.__version__,
        layout_id=LAYOUT_ID,
        user=user_name(os.geteuid()),
        contexts=sum(each.owner == "alive" for each in found),
        domains=tuple(sorted({each.domain for each in found})),
        checks=checks,
        leftovers=leftovers,
        other_layouts=others,
        unreadable=unreadable,
        reclaimed_objects=objects,
        reclaimed_bytes=freed,
    )


def _show(console: Console, found: Diagnosis, domains: tuple[str, ...], *, reclaim: bool) -> None:
    console.print(
        safe(
            f"{found.host}: Linux {found.kernel}, Python {found.python}, ipcbus {found.release} (layout "
            f"{found.layout_id:#010x}), user {found.user}, {plural(found.contexts, 'live context')}"
        ),
        style="bold",
    )
    width = max(len(check.name) for check in found.checks)
    for check in found.checks:
        _line(console, check.state, f"{check.name:{width}}  {check.found}", check.cure)
    if reclaim:
        console.print(f"reclaimed {plural(found.reclaimed_objects, 'object')}, {size(found.reclaimed_bytes)}")
    show_table(console, "leftovers of dead contexts", [_leftover(each) for each in found.leftovers])
    show_table(console, "live contexts of other layouts", [_other_layout(each) for each in found.other_layouts])
    show_table(console, "live, but not readable", [_unreadable(each) for each in found.unreadable])
    for domain in dict.fromkeys(domains):
        if domain not in found.domains:
            console.print(
                safe(f"domain {domain!r} has no context; 'ipcbus list --all' shows every domain"), soft_wrap=True
            )
    _sum_up(console, found)


def _line(console: Console, state: str, text: str, cure: str) -> None:
    line = safe(f"{state:7}  {text}")
    line.stylize(_STYLES[state], 0, len(state))
    console.print(line, soft_wrap=True)
    if cure:
        console.print(safe(f"         cure: {cure}"), soft_wrap=True)


def _leftover(each: Leftover) -> Row:
    return {
        "domain": each.domain,
        "context": f"{each.context_id:08x}",
        "user": each.user,
        "objects": each.objects,
        "bytes": size(each.bytes),
        "age": age(each.age_seconds),
        "state": "reclaimed" if each.reclaimed else "left over",
        "reason": each.reason,
        "cure": each.cure,
    }


def _other_layout(each: OtherLayout) -> Row:
    return {
        "domain": each.domain,
        "context": f"{each.context_id:08x}",
        "pid": each.pid,
        "user": each.user,
        "release": each.release,
        "layout": f"{each.layout_id:#010x}",
        "sessions": each.sessions,
        "cure": each.cure,
    }


def _unreadable(each: Unreadable) -> Row:
    return {
        "domain": each.domain,
        "session": each.source or f"context {each.context_id:08x}",
        "pid": each.pid or "",
        "user": each.user,
        "reason": each.reason,
        "cure": each.cure,
    }


def _sum_up(console: Console, found: Diagnosis) -> None:
    left = sum(not each.reclaimed for each in found.leftovers)
    count = sum(check.state == FINDING for check in found.checks)
    parts = [
        *([plural(count, "finding") + " on this host"] if count else []),
        *([f"{plural(left, 'dead context')} left objects behind"] if left else []),
        *([plural(len(found.other_layouts), "context") + " of another layout"] if found.other_layouts else []),
        *([f"{len(found.unreadable)} not readable"] if found.unreadable else []),
    ]
    if found.result == NOT_CHECKABLE:
        parts.append("no finding, but not everything could be checked")
    console.print("; ".join(parts) or "all is well", style="bold")
