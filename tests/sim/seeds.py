"""What the programs that run many seeds of a simulation share."""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PART = 50


def arguments(module: str, description: str, *, shows: str = "its error") -> argparse.Namespace:
    """Returns the arguments of `python -m MODULE`; `shows` says what a run of one seed prints."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--seed", type=int, help=f"run this one only, and show {shows}")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many to run (default 10000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at the same time (default: all cores)")
    return parser.parse_args()


def parts(asked: argparse.Namespace, size: int = PART) -> list[range]:
    """Returns the seeds that were asked for, in parts for the processes."""
    end = asked.first + asked.seeds
    return [range(first, min(first + size, end)) for first in range(asked.first, end, size)]


def attempt(run: Callable[[int], object], seeds: range) -> list[tuple[int, str]]:
    """Runs some seeds; returns those that fail, and how."""
    failed = []
    for seed in seeds:
        try:
            run(seed)
        except Exception:
            failed.append((seed, traceback.format_exc()))
    return failed


def run_many(
    module: str,
    description: str,
    noun: str,
    run: Callable[[int], object],
    *,
    every: int,
) -> int:
    """Runs the seeds that were asked for; prints each seed that fails, and how far it is.

    Args:
        module: the module that is run.
        description: says what it does.
        noun: what one seed is, in the plural.
        run: runs one seed.
        every: without a terminal, progress is printed once in this many seeds.
    """
    asked = arguments(module, description)
    if asked.seed is not None:
        print(f"seed {asked.seed}: {run(asked.seed)}")
        return 0
    began = time.monotonic()
    failures: list[tuple[int, str]] = []
    done = 0
    with ProcessPoolExecutor(asked.processes, multiprocessing.get_context("spawn")) as pool:
        for part, failed in zip(parts(asked), pool.map(functools.partial(attempt, run), parts(asked)), strict=True):
            done += len(part)
            failures += failed
            for seed, trace in failed[: max(0, 3 - len(failures) + len(failed))]:
                print(f"\nseed {seed} fails; replay it with: python -m {module} --seed {seed}\n{trace}")
            if sys.stdout.isatty() or done % every == 0 or done == asked.seeds:
                print(f"{done} of {asked.seeds} {noun}, {len(failures)} failed, {time.monotonic() - began:.0f} s")
    if failures:
        print("failed seeds:", *(seed for seed, _ in failures[:50]))
    return 1 if failures else 0
