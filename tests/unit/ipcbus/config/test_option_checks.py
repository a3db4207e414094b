"""What a user wrote is checked, and each error says what was probably meant."""

from __future__ import annotations

import pytest

from ipcbus.config.option_checks import checked, known_scope, section_of
from ipcbus.errors import ConfigError


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        ("sourc", "there is no scope 'sourc'; did you mean source"),
        ("nothing like it", "known are: context, "),
        ("udp_fallback", "option udp_fallback stands outside of its scope: move it into section source"),
    ],
)
def test_an_unknown_scope_is_refused_with_a_hint(scope: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        known_scope(scope)


def test_a_section_must_be_a_mapping() -> None:
    assert section_of("source", {"transport": "lbtipc"}) == {"transport": "lbtipc"}
    with pytest.raises(ConfigError, match="section source in bus.toml is 7: it must be a mapping"):
        section_of("source", 7, " in bus.toml")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("transprt", "lbtipc", r"there is no option 'transprt' .*; did you mean transport \(scope source\)"),
        ("resolver_multicast_interface", "", "was given in scope source, but belongs to scope context: set it there"),
        ("transport", "lbtx", r"option transport \(scope source\) = 'lbtx'"),
    ],
)
def test_an_option_that_cannot_be_set_is_refused_with_the_cure(name: str, value: object, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        checked("source", {name: value})


def test_values_are_returned_as_the_options_store_them() -> None:
    assert checked("source", {"transport": "LBT-SMX"}) == {"transport": "lbtsmx"}


def test_none_is_the_default_where_an_option_says_so() -> None:
    assert checked("receiver", {"history": None, "ordered_delivery": 1}) == {"ordered_delivery": 1}
    with pytest.raises(ConfigError, match="option ordered_delivery .* = None"):
        checked("receiver", {"ordered_delivery": None})
