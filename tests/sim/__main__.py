"""Runs many storms: `python -m tests.sim [--seeds N] [--first N] [--processes N]`, or one: `--seed N`."""

from __future__ import annotations

import sys

from tests.sim.seeds import run_many
from tests.sim.storm import run


def main() -> int:
    """Runs them; tells how far it is, and of every seed that fails."""
    return run_many("tests.sim", "Sessions in virtual time, from seeds.", "storms", run, every=2000)


if __name__ == "__main__":
    sys.exit(main())
