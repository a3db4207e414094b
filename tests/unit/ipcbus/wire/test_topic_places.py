from __future__ import annotations

import pytest

from ipcbus.wire.topic_places import pack, unpack
from tests.kit.cases import each_of


@each_of("numbers", [(0, 0), (0, 2**18 - 2), (2**46 - 1, 2**46 - 1), (12, 17)])
def test_a_place_has_first_and_last_number(numbers: tuple[int, int]) -> None:
    assert unpack(pack(*numbers)) == numbers


@pytest.mark.parametrize("numbers", [(0, 2**18 - 1), (2**46, 2**46)])
def test_numbers_that_do_not_fit_are_not_known(numbers: tuple[int, int]) -> None:
    assert pack(*numbers) == 0
    assert unpack(0) is None
