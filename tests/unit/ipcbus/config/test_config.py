from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ipcbus.config import TABLE, Config
from ipcbus.errors import ConfigError
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from pathlib import Path


def refusal(sections: object) -> str:
    """The text of the error that a config gives."""
    with pytest.raises(ConfigError) as caught:
        Config.load(sections)  # type: ignore[arg-type]
    return str(caught.value)


def override_refusal(scope: str, **overrides: object) -> str:
    """The text of the error that the keyword arguments of one call give."""
    with pytest.raises(ConfigError) as caught:
        Config.load(None).values(scope, "", **overrides)
    return str(caught.value)


def test_defaults_below_config_below_overrides() -> None:
    config = Config.load({"source": {"transport_lbtipc_id": 5, "implicit_batching_interval": 50}})
    values = config.values("source", transport_lbtipc_id=9)
    assert values.transport_lbtipc_id == 9
    assert values.implicit_batching_interval == 50
    assert values.transport == "lbtipc"
    assert config.values("source").transport_lbtipc_id == 5


def test_every_scope_may_be_given() -> None:
    scopes = ("context", "source", "receiver", "event_queue", "wildcard_receiver")
    config = Config.load({scope: {} for scope in scopes})
    for scope in scopes:
        assert config.values(scope).scope == scope


def test_load_takes_a_config() -> None:
    config = Config.load(None)
    assert Config.load(config) is config


def test_later_change_of_the_mapping_changes_nothing() -> None:
    source = {"transport": "lbtsmx"}
    config = Config.load({"source": source})
    source["transport"] = "nonsense"
    assert config.values("source").transport == "lbtsmx"


def test_values_of_other_scopes_are_not_mixed_in() -> None:
    config = Config.load({"context": {"context_name": "feed"}})
    assert "context_name" not in config.values("source")
    assert config.values("context").context_name == "feed"


def test_options_of_a_wildcard_receiver_and_of_its_receivers() -> None:
    config = Config({"receiver": {"ordered_delivery": -1}})
    receivers, wildcard = config.wildcard_values({"pattern_type": "regex", "receive_queue_maximum": 7})
    assert (receivers.ordered_delivery, receivers.receive_queue_maximum, wildcard.pattern_type) == (-1, 7, "regex")


def test_repr_names_what_was_set() -> None:
    assert repr(Config.load({"source": {"transport": "LBT-SMX"}})) == "Config({'source': {'transport': 'lbtsmx'}})"


def test_toml(tmp_path: Path) -> None:
    path = tmp_path / "bus.toml"
    path.write_text('[context]\nregistry_hidden = true\n[source]\ntransport = "LBT-SMX"\n')
    for config in (Config.load(path), Config.load(str(path))):
        assert config.values("context").registry_hidden is True
        assert config.values("source").transport == "lbtsmx"


def test_toml_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bus.toml"
    assert str(path) in refusal(path)
    assert "No such file" in refusal(path)
    assert "Is a directory" in refusal(tmp_path)
    path.write_text("transport lbtipc\n")
    assert re.search(r"bus\.toml is not TOML .*line 1.*\[source\]", refusal(path))
    path.write_bytes(b"\xff")
    assert "is not TOML" in refusal(path)
    path.write_text("[source]\ntransport_lbtipc_id = -1\n")
    assert refusal(path) == (
        f"option transport_lbtipc_id (scope source) = -1 (in {path}): it must be a whole number from 0 to 65535"
    )


def test_not_a_config() -> None:
    assert "type int" in refusal(7)
    assert "section source is 'lbtsmx'" in refusal({"source": "lbtsmx"})


@each_of(
    ("name", "nearest"),
    [
        ("transprt", "transport (scope source)"),
        ("transport_lbtipc_idd", "transport_lbtipc_id (scope source)"),
        ("implicit_batching_minimum_len", "implicit_batching_minimum_length (scope source)"),
        ("transport_lbtipc_activity_timeouts", "transport_lbtipc_activity_timeout (scope receiver)"),
    ],
)
def test_unknown_option_names_the_nearest(name: str, nearest: str) -> None:
    text = override_refusal("source", **{name: 17})
    assert text == f"there is no option {name!r} (given in scope source = 17); did you mean {nearest}?"


def test_unknown_option_without_neighbour_says_where_the_list_is() -> None:
    text = override_refusal("receiver", zzz=1)
    assert text.endswith("(given in scope receiver = 1); 'ipcbus config show --scope receiver' lists all of them")


def test_unknown_option_with_words_of_many_lists_the_few_nearest() -> None:
    text = override_refusal("source", window_size=4096)
    assert (
        "the nearest are transport_lbtipc_transmission_window_size, transport_lbtrm_transmission_window_size, " in text
    )
    assert text.endswith("; 'ipcbus config show --scope source' lists all of them")
    assert text.count("_window_size") == 5


def test_wrong_scope_names_the_right_one() -> None:
    text = override_refusal("source", transport_lbtipc_datagram_max_size=1000)
    assert "= 1000" in text
    assert "given in scope source, but belongs to scope context" in text
    assert "Context(config={'context': {'transport_lbtipc_datagram_max_size': ...}})" in text


def test_option_outside_of_a_section() -> None:
    assert "move it into section source" in refusal({"transport": "lbtsmx"})


@pytest.mark.parametrize(("scope", "hint"), [("sorce", "did you mean source?"), (1, "known are: context, ")])
def test_unknown_scope(scope: object, hint: str) -> None:
    text = refusal({scope: {}})
    assert repr(scope) in text
    assert hint in text


def test_refused_value_names_option_scope_and_value() -> None:
    assert override_refusal("context", thread_cpu="2") == (
        "option thread_cpu (scope context) = '2': it must be a whole number from -1 to 1023, not of type str"
    )
    assert override_refusal("source", transport="udp") == (
        "option transport (scope source) = 'udp': it must be one of lbtipc, lbtsmx, lbtru, lbtrm, lbttcp, tcp; "
        "did you mean lbtru, or lbtrm for multicast?"
    )


@pytest.mark.parametrize("transport", ["lbtipc", "lbtsmx"])
def test_pool_of_ids_is_not_empty(transport: str) -> None:
    low, high = f"transport_{transport}_id_low", f"transport_{transport}_id_high"
    assert Config.load({"context": {low: 7, high: 7}}).values("context")[low] == 7
    text = refusal({"context": {low: 9, high: 7}})
    assert f"option {high} (scope context) = 7" in text
    assert f"option {low} (scope context) = 9" in text
    assert "pool" in text
    assert high in override_refusal("context", **{high: 7})


def test_ring_holds_two_datagrams_within_a_scope() -> None:
    assert override_refusal("source", transport_lbtsmx_datagram_max_size=2**20) == (
        "option transport_lbtsmx_transmission_window_size (scope source) = 1048576 is less than 2 times "
        "option transport_lbtsmx_datagram_max_size (scope source) = 1048576: the ring must hold two "
        "datagrams of maximum size. Set transport_lbtsmx_transmission_window_size to at least 2097152, or "
        "transport_lbtsmx_datagram_max_size to at most 524288"
    )


def test_ring_is_measured_after_rounding() -> None:
    values = Config.load(None).values(
        "source", transport_lbtsmx_transmission_window_size=5000, transport_lbtsmx_datagram_max_size=4096
    )
    assert values.transport_lbtsmx_transmission_window_size == 8192


def test_ring_holds_two_datagrams_across_scopes() -> None:
    window = {"transport_lbtipc_transmission_window_size": 65536}
    for text in (refusal({"source": window}), override_refusal("source", **window)):
        assert "transport_lbtipc_transmission_window_size (scope source) = 65536" in text
        assert "transport_lbtipc_datagram_max_size (scope context) = 65535" in text
        assert "at least 131070" in text
        assert "at most 32768" in text
    config = Config.load({"context": {"transport_lbtipc_datagram_max_size": 32768}})
    assert config.values("source", "", **window).transport_lbtipc_transmission_window_size == 65536


def test_relation_is_checked_from_the_other_side_too() -> None:
    config = Config.load(
        {
            "context": {"transport_lbtipc_datagram_max_size": 1000},
            "source": {"transport_lbtipc_transmission_window_size": 65536},
        }
    )
    with pytest.raises(ConfigError, match="transport_lbtipc_transmission_window_size"):
        config.values("context", transport_lbtipc_datagram_max_size=65535)


def test_environment_names_the_file_when_nothing_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bus.toml"
    path.write_text("[source]\ntransport_lbtipc_id = 7\n")
    monkeypatch.setenv("IPCBUS_CONFIG", str(path))
    assert Config.load(None).values("source").transport_lbtipc_id == 7
    assert Config.load({}).values("source").transport_lbtipc_id == 0
    monkeypatch.setenv("IPCBUS_CONFIG", "")
    assert Config.load(None).values("source").transport_lbtipc_id == 0


def test_environment_is_named_in_errors_and_not_looked_at_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPCBUS_CONFIG", "/nonexistent/bus.toml")
    assert "/nonexistent/bus.toml, named by IPCBUS_CONFIG cannot be read" in refusal(None)
    Config.load({})


def test_what_has_no_effect_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "um.cfg"
    path.write_text("source ume_late_join 1\nsource transport lbtsmx\nreceiver use_hotlink 1\n")
    config = Config.load(path)
    assert config.values("source").transport == "lbtsmx"
    (record,) = caplog.records
    assert record.name == "ipcbus"
    assert record.getMessage() == (
        f"config file {path}: options of Ultra Messaging that have no effect in ipcbus: "
        "source ume_late_join (line 1), receiver use_hotlink (line 3)"
    )
    assert [each.name for each in config.ignored] == ["ume_late_join", "use_hotlink"]
    assert config.origin == str(path)
    Config.load(config)
    Config.from_file(path)
    assert len(caplog.records) == 1


def test_what_has_no_effect_is_refused_elsewhere() -> None:
    text = refusal({"source": {"use_hotlink": 1}})
    assert text.startswith("option use_hotlink (scope source) = 1 is an option of Ultra Messaging that has no effect")
    text = refusal({"source": {"umq_ulb_receiver_portion": 4}})  # in Ultra Messaging, one of the source
    assert "belongs to scope receiver" in text


def test_relations_of_a_flat_file_name_it(tmp_path: Path) -> None:
    path = tmp_path / "um.cfg"
    path.write_text("source transport_lbtipc_sm_interval 50000\n")
    assert f"= 60000 ms (in {path}) is less than 2 times" in refusal(path)


def test_receiver_and_source_of_one_config_limit_each_other() -> None:
    config = Config.load({"source": {"transport_lbtipc_sm_interval": 100}})
    values = config.values("receiver", transport_lbtipc_activity_timeout=251)
    assert values.transport_lbtipc_activity_timeout == 251
    with pytest.raises(ConfigError, match="at most 50 ms"):
        config.values("receiver", transport_lbtipc_activity_timeout=100, delivery_control_loss_check_interval=0)


def test_smx_given_as_source_paced_in_one_call() -> None:
    config = Config.load({"source": {"transport_lbtipc_behavior": "source_paced"}})
    assert config.values("source", transport="LBT-SMX").transport == "lbtsmx"
    with pytest.raises(ConfigError, match="receiver-paced only"):
        config.values("source", transport="LBT-SMX", transport_lbtipc_behavior="source-paced")


def test_no_option_is_called_as_a_parameter_of_values() -> None:
    assert "topic" not in {row.name for row in TABLE}
    with pytest.raises(ConfigError, match="no option 'scope'"):
        Config.load(None).values("source", "", **{"scope": 1})


def test_origins() -> None:
    config = Config(
        {
            "source": {"transport": "lbtsmx", "transport_lbtipc_id": 1},
            "topics": [{"pattern": "q.*", "source": {"transport_lbtipc_id": 2}}],
        },
        "bus.toml",
    )
    assert config.origins("source") == {"transport": "bus.toml", "transport_lbtipc_id": "bus.toml"}
    assert config.origins("source", "q") == {
        "transport": "bus.toml",
        "transport_lbtipc_id": "topics entry 1, pattern 'q.*'",
    }
    assert config.origins("receiver", "q") == {}
    assert Config({"source": {"transport": "lbtsmx"}}).origins("source") == {"transport": "config"}
    assert "topics entry 1, pattern 'q.*'" in repr(config)
