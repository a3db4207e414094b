from __future__ import annotations

import pytest

from ipcbus.config import Config
from ipcbus.config.topic_overrides import read
from ipcbus.errors import ConfigError
from tests.kit.cases import each_of

SMALL = {"transport_lbtipc_transmission_window_size": 65536}


def refusal(topics: object, **sections: object) -> str:
    with pytest.raises(ConfigError) as caught:
        Config({"topics": topics, **sections}, "bus.toml")
    return str(caught.value)


def test_name_is_exact_and_pattern_fits_the_whole_topic() -> None:
    name, pattern = read([{"name": "a.b"}, {"pattern": "a.b"}], "")
    assert name.fits("a.b")
    assert not name.fits("aXb")
    assert pattern.fits("aXb")
    assert not pattern.fits("aXbc")
    assert not pattern.fits("caXb")


def test_order_of_precedence() -> None:
    config = Config(
        {
            "source": {"implicit_batching_interval": 10},
            "topics": [
                {"pattern": "q.*", "source": {"implicit_batching_interval": 20, "transport_lbtipc_id": 2}},
                {"name": "quotes", "source": {"implicit_batching_interval": 30}},
            ],
        }
    )
    assert config.values("source").implicit_batching_interval == 10
    assert config.values("source", "other").implicit_batching_interval == 10
    assert config.values("source", topic="q").implicit_batching_interval == 20
    assert config.values("source", "quotes").implicit_batching_interval == 30
    assert config.values("source", "quotes").transport_lbtipc_id == 2
    assert config.values("source", "quotes", implicit_batching_interval=40).implicit_batching_interval == 40


def test_later_entry_wins_also_over_an_exact_name() -> None:
    exact = {"name": "quotes", "receiver": {"ordered_delivery": 0}}
    every = {"pattern": ".*", "receiver": {"ordered_delivery": -1}}
    for entries, expected in (([exact, every], -1), ([every, exact], 0)):
        assert Config({"topics": entries}).values("receiver", "quotes").ordered_delivery == expected


def test_relations_are_checked_for_what_topics_merge() -> None:
    text = refusal([{"name": "x", "source": SMALL}])
    assert "= 65536 (in bus.toml, topics entry 1, name 'x') is less than 2 times" in text
    lower = {"transport_lbtipc_datagram_max_size": 30000}
    Config({"context": lower, "topics": [{"name": "x", "source": SMALL}]})


def test_an_exact_name_is_checked_with_all_that_fits_it() -> None:
    smx = {"name": "x", "source": {"transport_lbtsmx_datagram_max_size": 2**20}}
    larger = {"pattern": ".*", "source": {"transport_lbtsmx_transmission_window_size": 2**22}}
    Config({"topics": [larger, smx]})
    assert "datagram_max_size" in refusal([smx])


def test_relations_are_checked_for_what_patterns_merge_when_it_is_used() -> None:
    config = Config(
        {
            "receiver": {"transport_lbtipc_activity_timeout": 50_000},
            "topics": [
                {"pattern": "a.*", "source": {"transport_lbtipc_sm_interval": 25_000}},
                {"pattern": ".*b", "receiver": {"transport_lbtipc_activity_timeout": 40_000}},
            ],
        }
    )
    config.values("source", "a")
    config.values("receiver", "b")
    for scope in ("source", "receiver"):
        with pytest.raises(ConfigError, match="activity_timeout .* is less than 2 times .*sm_interval"):
            config.values(scope, "ab")


@each_of(
    ("topics", "says"),
    [
        ({"name": "x"}, "give a list of tables"),
        (["x"], "topics entry 1 (in bus.toml) is 'x'"),
        ([{}], "neither a name nor a pattern"),
        ([{"name": "x", "pattern": "x"}], "both a name and a pattern"),
        ([{"name": ""}], "not empty"),
        ([{"name": 7}], "it must be a text"),
        ([{"pattern": "("}], "(in bus.toml, topics entry 1, pattern '(') is not a regular expression"),
        (
            [{"name": "x", "context": {}}],
            "'context' (in bus.toml, topics entry 1, name 'x') is not a section for topics",
        ),
        (
            [{"name": "x", "transport": "lbtsmx"}],
            "'transport' (in bus.toml, topics entry 1, name 'x') is not a section",
        ),
        ([{"name": "x", "source": 1}], "section source (in bus.toml, topics entry 1, name 'x') is 1"),
        ([{"name": "x"}, {"name": "y", "source": {"transprt": 1}}], "topics entry 2, name 'y')); did you mean transp"),
        ([{"name": "x", "receiver": {"ordered_delivery": 9}}], "topics entry 1, name 'x'): it must be a whole number"),
    ],
)
def test_refused(topics: object, says: str) -> None:
    assert says in refusal(topics)
