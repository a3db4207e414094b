from __future__ import annotations

import pytest

from ipcbus.config.flat import Ignored, meaningful, read
from ipcbus.errors import ConfigError
from tests.kit.cases import each_of


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, "um.cfg")
    return str(caught.value)


def test_lines_comments_and_blanks() -> None:
    sections, ignored = read(
        "# a comment\n"
        "\n"
        "context context_name  a#b and more # this is a comment\r\n"
        "\t source\ttransport_lbtipc_id 7\n"
        "receiver ordered_delivery -1\n"
        "event_queue queue_count_enabled 0\n"
        "wildcard_receiver pattern_type regex",
        "um.cfg",
    )
    assert sections == {
        "context": {"context_name": "a#b and more"},
        "source": {"transport_lbtipc_id": 7},
        "receiver": {"ordered_delivery": -1},
        "event_queue": {"queue_count_enabled": False},
        "wildcard_receiver": {"pattern_type": "regex"},
    }
    assert sections["event_queue"]["queue_count_enabled"] is False
    assert ignored == ()


@each_of("line", ["", "   ", "# all", "  # all"])
def test_nothing_meaningful(line: str) -> None:
    assert meaningful(line) == ""


def test_case_does_not_matter_but_of_texts_it_is_kept() -> None:
    sections, _ = read("SOURCE Transport LBT-SMX\ncontext context_name Feed", "um.cfg")
    assert sections == {"source": {"transport": "lbtsmx"}, "context": {"context_name": "Feed"}}


def test_later_line_wins() -> None:
    assert read("source transport lbtipc\nsource transport lbtsmx", "x")[0] == {"source": {"transport": "lbtsmx"}}


def test_each_line_adds_a_daemon() -> None:
    text = "context resolver_unicast_daemon 10.0.0.1:1\ncontext resolver_unicast_daemon 10.0.0.2:1,10.0.0.1:1"
    assert read(text, "x")[0] == {"context": {"resolver_unicast_daemon": "10.0.0.1:1;10.0.0.2:1"}}
    assert "at most 5" in refusal("\n".join(f"context resolver_unicast_daemon 10.0.0.{n}:1" for n in range(6)))


def test_what_has_no_effect_is_remembered() -> None:
    sections, ignored = read("source use_hotlink 1\n\nXSP operational_mode sequential\n", "um.cfg")
    assert sections == {}
    assert ignored == (Ignored("source", "use_hotlink", "1", 1), Ignored("xsp", "operational_mode", "sequential", 3))
    assert str(ignored[0]) == "source use_hotlink (line 1)"


def test_unknown_option_names_file_line_scope_and_nearest() -> None:
    assert refusal("\n\nsource transprt lbtipc") == (
        "there is no option 'transprt' (given in scope source = 'lbtipc' (in um.cfg, line 3)); "
        "did you mean transport (scope source)?"
    )


def test_nearest_may_be_one_without_effect() -> None:
    assert refusal("source use_hotlinkk 1").endswith("did you mean use_hotlink?")


def test_unknown_option_without_neighbour_says_what_is_there() -> None:
    assert refusal("receiver zzz 1").endswith("; 'ipcbus config show --scope receiver' lists all of them")
    assert "known are: operational_mode, zero_transports_function" in refusal("xsp zzz 1")


@pytest.mark.parametrize(
    ("line", "home"),
    [("source transport_lbtipc_activity_timeout 9", "receiver"), ("receiver late_join 1", "source")],
)
def test_wrong_scope_names_the_right_one(line: str, home: str) -> None:
    text = refusal(line)
    assert f"belongs to scope {home}" in text
    assert "(in um.cfg, line 1)" in text


def test_unknown_scope() -> None:
    assert refusal("Sorce transport lbtipc") == "there is no scope 'Sorce' (in um.cfg, line 1); did you mean source?"


@pytest.mark.parametrize("line", ["source", "source transport", "source transport # tcp"])
def test_half_a_line(line: str) -> None:
    assert "(in um.cfg, line 1) is not a whole line" in refusal(line)


@each_of(
    ("line", "cure"),
    [
        ("source transport udp", "it must be one of lbtipc, lbtsmx, lbtru, lbtrm, lbttcp"),
        ("receiver ordered_delivery 2", "from -1 to 1"),
        ("receiver ordered_delivery one", "from -1 to 1"),
        ("receiver ordered_delivery \u0661", "from -1 to 1"),
        ("source transport_lbtipc_id " + "9" * 5000, "from 0 to 65535"),
        ("source transport_lbtipc_id 1 2", "from 0 to 65535"),
        ("context registry_hidden true", "it must be 0 or 1"),
        ("context context_name \udcff", "surrogates"),
    ],
)
def test_refused_value(line: str, cure: str) -> None:
    text = refusal(line)
    assert "(in um.cfg, line 1): " in text
    assert cure in text
