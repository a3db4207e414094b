from __future__ import annotations

import pytest

from ipcbus.config import Config
from ipcbus.config.text_relations import TEXT_RELATIONS, TextRelation
from ipcbus.errors import ConfigError
from tests.kit.cases import each_of

ON = {"context": {"resolver_multicast_interface": "10.0.0.1"}}


def refusal(sections: dict[str, dict[str, str]]) -> str:
    with pytest.raises(ConfigError) as caught:
        Config(sections)
    return str(caught.value)


@each_of("relation", TEXT_RELATIONS, ids=lambda each: f"{each.one.name}-{each.other.name}")
def test_defaults_satisfy_it(relation: TextRelation) -> None:
    assert relation.complaint({}) == ""
    assert f"`{relation.one.name}`" in relation.rule
    assert f"`{relation.other.name}`" in relation.rule


def test_lbtrm_needs_an_interface() -> None:
    assert refusal({"source": {"transport": "lbtrm"}}) == (
        "option transport (scope source) = 'lbtrm' conflicts with option resolver_multicast_interface (scope "
        "context) = '': multicast is off until its interface is configured. Set "
        "resolver_multicast_interface (scope context) to the interface of the sources and receivers, or use "
        "transport = 'lbtru'"
    )
    assert Config({"source": {"transport": "lbtrm"}, **ON}).values("source").transport == "lbtrm"


def test_also_in_a_call_and_as_fallback() -> None:
    for name in ("transport", "udp_fallback"):
        with pytest.raises(ConfigError, match=f"{name} .*Set resolver_multicast_interface"):
            Config({}).values("source", "t", **{name: "lbtrm"})
        assert Config(ON).values("source", "t", **{name: "lbtrm"})[name] == "lbtrm"


def test_also_for_one_topic() -> None:
    topics = [{"name": "t", "source": {"transport": "lbtrm"}}]
    with pytest.raises(ConfigError, match="Set resolver_multicast_interface"):
        Config({"topics": topics})
    assert Config({"topics": topics, **ON}).values("source", "t").transport == "lbtrm"


@pytest.mark.parametrize(
    ("low", "high"),
    [("224.10.10.15", "224.10.10.14"), ("224.10.10.10", "ff15::1"), ("ff15::2", "ff15::1")],
)
def test_pool_of_groups(low: str, high: str) -> None:
    name = "transport_lbtrm_multicast_address_"
    assert "the pool of groups would be empty" in refusal({"context": {f"{name}low": low, f"{name}high": high}})
    Config({"context": {f"{name}low": high, f"{name}high": high}})


@each_of(
    ("daemon", "interface", "fits"),
    [
        ("127.0.0.1:1", "127.0.0.1", True),
        ("127.0.0.1:1;10.0.0.1:1", "127.0.0.1", False),
        ("10.0.0.1:1", "10.0.0.2/24", True),
        ("10.0.0.1:1", "0.0.0.0", True),
        ("10.0.0.1:1", "eth0", True),
        ("[::1]:1", "127.0.0.1", False),
        ("[::1]:1", "::1", True),
        ("", "::1", True),
    ],
)
def test_a_daemon_has_to_be_in_reach(daemon: str, interface: str, fits: bool) -> None:
    sections = {"context": {"resolver_unicast_daemon": daemon, "resolver_unicast_interface": interface}}
    if fits:
        Config(sections)
    else:
        assert "Set resolver_unicast_interface to the interface that leads to the resolver" in refusal(sections)
