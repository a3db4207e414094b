"""Runs sessions over UDP in virtual time: `python -m tests.sim.reliability [--seeds N] [--first N] [--processes N]`.

`--seed N` runs one, and tells what went over the wire. At the end stands a table, which docs/explanation/reliability.md
shows.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.sim import seeds
from tests.sim.udp_world import World, run

PART = 50

COLUMNS = (
    *("sessions", "datagrams", "receivers", "to deliver", "delivered", "unrecovered", "left missing"),
    *("duplicates", "retransmissions", "numbers in NAKs", "numbers in NCFs", "resets"),
)


def tally(world: World) -> Counter[str]:
    """What a run adds to a row of the table: all sessions, and the receivers that lived to the end of one."""
    found: Counter[str] = Counter(sessions=len(world.senders))
    for sender in world.senders:
        counts = sender.end.counts
        found.update({"datagrams": counts.msgs_sent, "retransmissions": counts.rxs_sent})
        found["numbers in NCFs"] += counts.ncfs_sent
    for member in world.members:
        if member.dead or member.sender is not world.senders[-1]:
            continue
        counts_there = member.end.counts
        due, accounted = member.ledger
        found.update(
            {
                "receivers": 1,
                "to deliver": due,
                "delivered": len(member.got),
                "left missing": member.end.missing,
                "unrecovered": accounted - len(member.got) - member.end.missing,
                "duplicates": counts_there.duplicate_data,
                "numbers in NAKs": counts_there.naks_sent,
                "resets": counts_there.resets_rcved,
            }
        )
    return found


def attempt(seeds: range) -> tuple[dict[str, Counter[str]], list[tuple[int, str]]]:
    """Runs some seeds; returns rows of the table, and each seed that fails with the reason."""
    rows: dict[str, Counter[str]] = {}
    failed = []
    for seed in seeds:
        try:
            world = run(seed)
        except Exception:
            failed.append((seed, traceback.format_exc()))
            continue
        if world.faults:
            failed.append((seed, "; ".join(world.faults[:5])))
        hindered = "nothing hinders" if world.storm.recovers_all else "all kinds of hindrance"
        rows.setdefault(f"{world.storm.loss_to:.0%} | {hindered}", Counter()).update(tally(world))
    return rows, failed


def table(rows: dict[str, Counter[str]]) -> str:
    """The table of the result."""
    head = ["| lost on the way | terms | " + " | ".join(COLUMNS) + " |", "|---|---|" + "---:|" * len(COLUMNS)]
    body = [
        f"| {name} | " + " | ".join(f"{rows[name][column]:,}" for column in COLUMNS) + " |"
        for name in sorted(rows, key=lambda name: (int(name.partition("%")[0]), name))
    ]
    return "\n".join(head + body)


def main() -> int:
    """Runs seeds; exit status 1 when one of them fails."""
    asked = seeds.arguments("tests.sim.reliability", "Sessions over UDP from seeds.", shows="all that it did")
    if asked.seed is not None:
        world = run(asked.seed)
        counts = [member.end.counts for member in world.members]
        print(*world.log, world.storm, *counts, *(sender.end.counts for sender in world.senders), sep="\n")
        print("faults:", *world.faults, sep="\n")
        return 1 if world.faults else 0
    began = time.monotonic()
    rows: dict[str, Counter[str]] = {}
    failures: list[tuple[int, str]] = []
    with ProcessPoolExecutor(asked.processes, multiprocessing.get_context("spawn")) as pool:
        for found, failed in pool.map(attempt, seeds.parts(asked, PART)):
            for name, row in found.items():
                rows.setdefault(name, Counter()).update(row)
            failures += failed
    for seed, why in failures[:10]:
        print(f"seed {seed} fails; replay it with: python -m tests.sim.reliability --seed {seed}\n{why}")
    print(table(rows))
    print(f"{asked.seeds} seeds, {len(failures)} failed, {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
