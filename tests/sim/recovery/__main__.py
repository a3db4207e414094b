"""Runs many recoveries: `python -m tests.sim.recovery [--seeds N] [--first N] [--processes N]`, or one: `--seed N`."""

from __future__ import annotations

import sys

from tests.sim.recovery.world import run
from tests.sim.seeds import run_many


def main() -> int:
    """Runs them; prints each seed that fails, and at the end what was delivered."""
    return run_many("tests.sim.recovery", "Recoveries from seeds.", "recoveries", run, every=1000)


if __name__ == "__main__":
    sys.exit(main())
