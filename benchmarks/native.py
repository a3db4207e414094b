"""The C programs of ``benchmarks/native``: built once, run by name, their JSON as a dict.

They give the limits of the machine that the figures of ipcbus are compared with. Figures are only
comparable when taken in turn: a virtual machine may be moved, while it runs, between cores that lie
near each other and cores that do not, and a cache line then takes several times as long from one
to the other. Programs that depend on it report the state of their run as ``line_round_trip_ns``.

Run ``python -m benchmarks.native --repeat 9 "ring tail" "ring stamp"`` for the medians of runs
taken in turn, one JSON object per command and state.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SOURCE_DIRECTORY: Final = Path(__file__).resolve().parent / "native"
BUILD_DIRECTORY: Final = Path(__file__).resolve().parents[1] / "build" / "native"
COMPILER_FLAGS: Final = ("-std=c11", "-D_GNU_SOURCE", "-O3", "-Wall", "-Wextra", "-pthread")
RUN_LIMIT_S: Final = 90.0
"""Longer than the watchdog of the programs, which says more about what went wrong."""
NEAR_LINE_NS: Final = 200.0
"""A cache line that goes there and back faster than this moves between neighbouring cores."""


def programs() -> list[str]:
    """Names of the programs that `run` knows, sorted."""
    return sorted(source.stem for source in SOURCE_DIRECTORY.glob("*.c"))


def build(name: str) -> Path:
    """Compile a program unless its binary is newer than every source, and return the binary.

    Safe while others build the same program: the binary appears in one piece.

    Args:
        name: One of `programs`.

    Returns:
        The path of the executable.

    Raises:
        ValueError: There is no such program.
        RuntimeError: The compiler is missing or refused the source.
    """
    if name not in programs():
        raise ValueError(f"no native program {name!r}; there are {', '.join(programs())}")
    source = SOURCE_DIRECTORY / f"{name}.c"
    binary = BUILD_DIRECTORY / name
    if not _is_current(binary, [source, *SOURCE_DIRECTORY.glob("*.h")]):
        BUILD_DIRECTORY.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD_DIRECTORY) as scratch:
            fresh = Path(scratch) / name
            compiler = shlex.split(os.environ.get("CC", "gcc"))
            _checked([*compiler, *COMPILER_FLAGS, "-o", str(fresh), str(source)])
            fresh.replace(binary)
    return binary


def run(name: str, *args: str) -> dict[str, Any]:
    """Run a program, compiling it first where needed.

    Args:
        name: One of `programs`.
        *args: Its arguments; the usage line at the top of each C file lists them.

    Returns:
        The JSON object that it printed.

    Raises:
        ValueError: There is no such program.
        RuntimeError: It could not be compiled, failed, or printed something else.
    """
    command = [str(build(name)), *args]
    output = _checked(command)
    try:
        result = json.loads(output)
    except json.JSONDecodeError as error:
        raise RuntimeError(f"{shlex.join(command)} printed no JSON: {output!r}") from error
    if not isinstance(result, dict):
        raise RuntimeError(f"{shlex.join(command)} printed no JSON object: {output!r}")
    return result


def run_in_turn(commands: Iterable[str], repeat: int) -> dict[str, list[dict[str, Any]]]:
    """Run each command once, then each once more, and so on, so that all see the same machine.

    Args:
        commands: Program names with their arguments, such as ``"ring stamp 8"``.
        repeat: How often each is run.

    Returns:
        The results of each command, in the order of the runs.
    """
    results: dict[str, list[dict[str, Any]]] = {command: [] for command in commands}
    for _ in range(repeat):
        for command, of_command in results.items():
            of_command.append(run(*shlex.split(command)))
    return results


def medians(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Median of every number over several results of one command; what is the same in all stays.

    Args:
        results: At least one result; all have the keys of the first.

    Returns:
        An object of the same shape.
    """
    merged: dict[str, Any] = {}
    for key, first in results[0].items():
        values = [result[key] for result in results]
        if isinstance(first, dict):
            merged[key] = medians(values)
        elif isinstance(first, int | float) and any(value != first for value in values):
            merged[key] = statistics.median(values)
        else:
            merged[key] = first
    return merged


def by_state(results: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group results by how far apart the two cores were.

    Args:
        results: Results of one command.

    Returns:
        Lists under ``"near"`` and ``"far"``, or all under ``"any"`` where a result does not say.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        line_ns = result.get("line_round_trip_ns")
        state = "any" if line_ns is None else "near" if line_ns < NEAR_LINE_NS else "far"
        groups.setdefault(state, []).append(result)
    return groups


def near_processors() -> tuple[int, int]:
    """Returns two processors that this process may use: near each other, but not two threads of one core if possible.

    Raises:
        RuntimeError: it may use one only.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise RuntimeError("two processors are needed: one for the sender, one for the receivers")
    first, *others = allowed
    threads, cached = _listed(first, "topology/thread_siblings_list"), _listed(first, "cache/index3/shared_cpu_list")
    near = [each for each in others if each in cached]
    for candidates in ([each for each in near if each not in threads], near, others):
        if candidates:
            return first, candidates[0]
    raise AssertionError("others is not empty")


def _listed(processor: int, name: str) -> set[int]:
    """The processors of a list of the kernel such as `0-3,8`; none where the kernel does not tell."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{processor}/{name}").read_text()
    except OSError:
        return set()
    found: set[int] = set()
    for part in text.strip().split(","):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found


def _is_current(binary: Path, sources: Iterable[Path]) -> bool:
    """Whether the binary exists and no source is newer."""
    if not binary.exists():
        return False
    built_ns = binary.stat().st_mtime_ns
    return all(source.stat().st_mtime_ns < built_ns for source in sources)


def _checked(command: Sequence[str]) -> str:
    """Standard output of a command that must succeed."""
    try:
        cores = {"IPCBUS_CORES": ",".join(map(str, near_processors()))}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False, env={**os.environ, **cores}
        )
    except FileNotFoundError as error:
        raise RuntimeError(f"{command[0]} is not installed or not on the path") from error
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{shlex.join(command)} ran past {RUN_LIMIT_S:g} s") from error
    if done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)} ended with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def main(argv: Sequence[str] | None = None) -> None:
    """Print the medians of commands run in turn.

    Args:
        argv: Arguments without the program name; those of the process where None.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.native",
        description="Medians of native programs run in turn, one JSON object per line.",
    )
    parser.add_argument("commands", nargs="+", metavar="COMMAND", help="such as 'ring stamp 8'")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each command (default 5)")
    options = parser.parse_args(argv)
    if options.repeat < 1:
        parser.error("--repeat is at least 1")
    for command, results in run_in_turn(options.commands, options.repeat).items():
        for state, group in by_state(results).items():
            summary = {"command": command, "state": state, "runs": len(group)}
            print(json.dumps(summary | medians(group)))


if __name__ == "__main__":
    main()
