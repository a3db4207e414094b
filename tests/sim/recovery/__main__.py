"""Runs many recoveries: `python -m tests.sim.recovery [--seeds N] [--first N] [--processes N]`, or one: `--seed N`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.sim.recovery.world import attempt, run

PART = 50


def main() -> int:
    """Runs them; prints each seed that fails, and at the end what was delivered."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.recovery", description="Recoveries from seeds.")
    parser.add_argument("--seed", type=int, help="run this one only, and show its error")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many to run (default 10000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at the same time (default: all cores)")
    asked = parser.parse_args()
    if asked.seed is not None:
        print(f"seed {asked.seed}: {run(asked.seed)}")
        return 0
    began = time.monotonic()
    end = asked.first + asked.seeds
    parts = [range(first, min(first + PART, end)) for first in range(asked.first, end, PART)]
    failures: list[tuple[int, str]] = []
    done = 0
    with ProcessPoolExecutor(asked.processes, multiprocessing.get_context("spawn")) as pool:
        for part, failed in zip(parts, pool.map(attempt, parts), strict=True):
            done += len(part)
            failures += failed
            for seed, trace in failed[: max(0, 3 - len(failures) + len(failed))]:
                print(f"\nseed {seed} fails; replay it with: python -m tests.sim.recovery --seed {seed}\n{trace}")
            if sys.stdout.isatty() or done % 1000 == 0 or done == asked.seeds:
                print(f"{done} of {asked.seeds} recoveries, {len(failures)} failed, {time.monotonic() - began:.0f} s")
    if failures:
        print("failed seeds:", *(seed for seed, _ in failures[:50]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
