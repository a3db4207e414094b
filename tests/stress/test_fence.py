"""The full fence on its own interleaving: two processes store, fence and load, and one of them sees the other's store.

Joining a ring relies on it: a fence that only acquires and releases lets each load pass the store before it, so that a
writer without room and a reader that joins miss each other.
"""

from __future__ import annotations

import importlib.util
import mmap
import os
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING, Any

import pytest

from tests.rings.children import Children
from tests.unit.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 20_000
ENOUGH = 50
"""Meetings missed with the weaker fences, after which the full one is judged: this machine shows the difference now."""


@pytest.fixture
def litmus(tmp_path: Path) -> Any:  # noqa: ANN401 - a compiled module
    """The compiled module, over the fences that the project uses."""
    source, target = tmp_path / "litmus.c", tmp_path / f"litmus{sysconfig.get_config_var('EXT_SUFFIX')}"
    cython = [sys.executable, "-m", "cython", "-3", "-I", str(ROOT), "-o", str(source)]
    subprocess.run([*cython, str(ROOT / "tests" / "rings" / "litmus.pyx")], check=True, capture_output=True)
    compiler = os.environ.get("CC", "gcc").split()
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run([*compiler, "-O3", "-shared", "-fPIC", include, str(source), "-o", str(target)], check=True)
    spec = importlib.util.spec_from_file_location("litmus", target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_one_of_two_that_store_and_then_look_sees_the_other(litmus: Any) -> None:  # noqa: ANN401
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("two processes on one core never store at the same time")
    with mmap.mmap(-1, mmap.PAGESIZE) as shared:

        def side(which: int, full: bool, first: int) -> int:
            os.sched_setaffinity(0, {cores[which]})
            missed: int = litmus.run(shared, which, full, first, ROUNDS)
            return missed

        def meet(full: bool, first: int) -> int:
            with Children() as children:
                one, two = children.results([children.run(side, which, full, first) for which in (0, 1)])
            assert one == two
            return one

        weak = rounds = 0
        # Other processes keep the two from meeting, so it goes on until the weaker fences have shown what they do.
        while weak < ENOUGH:
            weak += meet(False, rounds * ROUNDS + 1)
            rounds += 1
        full = sum(meet(True, (rounds + each) * ROUNDS + 1) for each in range(2 * rounds))
    print(f"{ROUNDS * rounds} meetings: {weak} missed with the weaker fences; twice as many: {full} with the full one")
    assert full == 0
