"""What a user wrote is checked, and each error says what was probably meant."""

from __future__ import annotations

import pytest

from ipcbus.config.option_checks import checked, known_scope, refuse_keywords, section_of
from ipcbus.errors import ConfigError
from tests.kit.cases import each_of


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


@each_of(
    ("name", "value", "text"),
    [
        (
            "transport",
            "lbtipc",
            "Context takes no transport = 'lbtipc', which is an option of scope source; give it to "
            "ctx.source(topic, transport='lbtipc'), or set it for all, as in "
            "Context(config={'source': {'transport': 'lbtipc'}})",
        ),
        (
            "history",
            1,
            "Context takes no history = 1, which is an option of scope receiver; give it to "
            "ctx.receiver(topic, history=1), or set it for all, as in Context(config={'receiver': {'history': 1}})",
        ),
        (
            "thread_cpu",
            2,
            "Context takes no thread_cpu = 2, which is an option of scope context; write "
            "Context(config={'context': {'thread_cpu': 2}})",
        ),
        (
            "event_queue_name",
            "q",
            "Context takes no event_queue_name = 'q', which is an option of scope event_queue; give it to "
            "ipcbus.EventQueue(event_queue_name='q')",
        ),
        ("domian", "d", "Context takes no domian = 'd'; did you mean domain?"),
        ("transprot", "lbtsmx", "Context takes no transprot = 'lbtsmx'; did you mean transport (scope source)?"),
        (
            "zzz",
            1,
            "Context takes no zzz = 1; known are: config, domain, name, operational_mode; 'ipcbus config show' lists "
            "the options of a config",
        ),
    ],
)
def test_an_unknown_keyword_of_a_context_is_refused_with_the_place_where_it_belongs(
    name: str, value: object, text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_keywords({name: value})
    assert str(caught.value) == text


def test_no_keyword_is_refused_where_there_is_none() -> None:
    refuse_keywords({})


def test_a_parameter_of_the_call_may_be_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no option 'on_mesage' .*; did you mean on_message\?$"):
        checked("receiver", {"on_mesage": print}, parameters=("on_message",))
    with pytest.raises(ConfigError, match=r"no option 'on_mesage' .*; did you mean message_max \(scope source\)"):
        checked("receiver", {"on_mesage": print})  # in a config


def test_the_nearest_of_another_scope_have_its_name() -> None:
    with pytest.raises(ConfigError, match=r"the nearest are .*, requests_outstanding_maximum \(scope context\);"):
        checked("receiver", {"outstanding": 1})
