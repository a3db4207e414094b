"""Runs many guaranteed deliveries: `python -m tests.sim.gmd [--seeds N] [--first N] [--processes N]`, or `--seed N`."""

from __future__ import annotations

import sys

from tests.sim.gmd.guaranteed_world import run
from tests.sim.seeds import run_many


def main() -> int:
    """Runs them; prints each seed that fails."""
    return run_many("tests.sim.gmd", "Guaranteed deliveries from seeds.", "deliveries", run, every=1000)


if __name__ == "__main__":
    sys.exit(main())
