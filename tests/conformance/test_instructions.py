"""No form of sending and receiving takes many more instructions than the table says.

Where a change is meant to cost something, `python -m benchmarks.instructions --write` writes the table again, and the
commit says why.
"""

from __future__ import annotations

import json

import pytest

from benchmarks import instructions

# Valgrind runs every form at a fiftieth of its speed or slower, and needs a processor all the time.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

SAME_TOOLCHAIN = 1.10
OTHER_TOOLCHAIN = 1.50
"""Another interpreter or compiler counts otherwise, and the table has the figures of one."""


def test_no_form_takes_more_instructions_than_the_table_says() -> None:
    table = json.loads(instructions.TABLE.read_text())
    limit = SAME_TOOLCHAIN if instructions.toolchain() == table["toolchain"] else OTHER_TOOLCHAIN
    found = instructions.count()
    assert found.keys() == table["instructions"].keys()
    too_many = {
        name: f"{count:.0f} instructions, the table says {table['instructions'][name]:.0f}"
        for name, count in found.items()
        if count > table["instructions"][name] * limit
    }
    assert not too_many
