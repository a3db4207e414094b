from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from ipcbus.config import Config
from ipcbus.errors import ConfigError
from ipcbus.spark.sink.write_options import WRITE, WriteOptions

ONCE = {"deliveryGuarantee": "exactly-once", "stagingDir": "/staging"}


def refused(given: dict[str, str], use: str = "stream") -> str:
    """The text with which options are refused."""
    with pytest.raises(ConfigError) as error:
        WriteOptions.of(given, use)
    return str(error.value)


def test_defaults() -> None:
    options = WriteOptions.of({}, "stream")
    assert (options.topic, options.exactly_once, options.staging, options.app) == (None, False, None, None)
    assert (options.version, options.identity) == (None, True)
    bus = options.bus
    assert (bus.domain, bus.config, bus.source) == ("default", None, ())
    assert (bus.receivers, bus.timeout_s, bus.linger_s, bus.strict) == (1, 30.0, 30.0, False)


def test_what_is_given() -> None:
    options = WriteOptions.of(
        {
            **ONCE,
            "TOPIC": "t",
            "txnappid": "app.1",
            "domain": "d",
            "transport": "lbtsmx",
            "source.transport_lbtsmx_datagram_max_size": "4096",
            "source.udp_fallback": "none",
            "waitForReceivers": "0",
            "receiverTimeout": "500ms",
            "linger": "1m",
            "checkpointLocation": "/anywhere",
        },
        "stream",
    )
    assert (options.topic, options.exactly_once, options.staging, options.app) == ("t", True, Path("/staging"), "app.1")
    assert options.bus.longest(Config({}), "t") == 4096 - 16
    assert options.bus.source == (
        ("transport", "lbtsmx"),
        ("transport_lbtsmx_datagram_max_size", 4096),
        ("udp_fallback", "none"),
    )
    assert (options.bus.receivers, options.bus.timeout_s, options.bus.linger_s) == (0, 0.5, 60.0)


def test_a_batch_may_name_its_version() -> None:
    assert WriteOptions.of({"txnAppId": "a", "txnVersion": "7"}, "batch").version == 7


def test_it_travels_to_workers() -> None:
    options = WriteOptions.of({**ONCE, "source.implicit_batching_interval": "3"}, "stream")
    there = pickle.loads(pickle.dumps(options))
    assert there == options
    assert hash(there.bus) == hash(options.bus)


@pytest.mark.parametrize("text", ["file:///a/b", "file:/a/b", "/a/b"])
def test_a_directory_may_be_a_url_of_this_host(text: str) -> None:
    assert WriteOptions.of({**ONCE, "stagingDir": text}, "stream").staging == Path("/a/b")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tpoic": "t"}, "option tpoic is unknown; did you mean topic?"),
        ({"path": "/x"}, "option path is unknown"),
        ({"topic": ""}, "option topic is ''"),
        ({"topic": "t" * 256}, "is not a valid name"),
        ({"deliveryGuarantee": "maybe"}, "it takes `at-least-once`, `exactly-once`"),
        ({"deliveryGuarantee": "exactly-once"}, "option stagingDir is missing"),
        ({**ONCE, "stagingDir": "relative"}, "give the absolute path of a directory on a disk of this host"),
        ({**ONCE, "stagingDir": "hdfs://x/y"}, "give the absolute path of a directory on a disk of this host"),
        ({**ONCE, "includeIdentity": "false"}, "option includeIdentity is false, but exactly-once needs true"),
        ({"txnAppId": "a/b"}, "option txnAppId is 'a/b' (it becomes the name of a directory"),
        ({"txnAppId": ".."}, "it becomes the name of a directory"),
        ({"txnAppId": "job-1"}, "the prefix job- is reserved"),
        ({"txnVersion": "1"}, "option txnVersion is for a batch, not for a stream"),
        ({"waitForReceivers": "-1"}, "it takes a number from 0"),
        ({"receiverTimeout": "30"}, "it takes a time such as"),
        ({"transport": "tcp"}, "it takes `lbtipc`, `lbtsmx`, `lbtru`, `lbtrm`"),
        ({"source.nonsense": "1"}, "option source.nonsense: there is no option 'nonsense'"),
        ({"source.transport_lbtipc_id": "x"}, "option source.transport_lbtipc_id is 'x': it must be a whole number"),
        ({"source.transport": "lbtru", "transport": "lbtru"}, "are both given"),
        ({"config": "/does/not/exist.toml"}, "/does/not/exist.toml"),
        ({**ONCE, "transport": "lbtru"}, "set source.transport to lbtipc or lbtsmx, or use at-least-once"),
        ({**ONCE, "source.transport_lbtipc_behavior": "source_paced"}, "so a receiver may miss messages"),
        ({**ONCE, "source.slow_receiver_behavior": "evict"}, "set source.slow_receiver_behavior to block"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named_with_its_cure(given: dict[str, str], told: str) -> None:
    assert told in refused(given)


@pytest.mark.parametrize("given", [{"txnAppId": "a"}, {"txnVersion": "1"}])
def test_a_batch_names_both_or_none(given: dict[str, str]) -> None:
    assert "txnAppId and txnVersion belong together" in refused(given, "batch")


def test_a_config_file_is_read_and_held_to_the_guarantee(tmp_path: Path) -> None:
    path = tmp_path / "bus.toml"
    path.write_text('[source]\nslow_receiver_behavior = "evict"\n')
    assert WriteOptions.of({"config": str(path)}, "stream").bus.config == str(path)
    assert "slow_receiver_behavior is 'evict'" in refused({**ONCE, "config": str(path)})


def test_the_options_of_one_topic_are_held_to_the_guarantee_too() -> None:
    config = Config({"topics": [{"name": "risky", "source": {"slow_receiver_behavior": "evict"}}]})
    bus = WriteOptions.of(ONCE, "stream").bus
    bus.check(config, "fine")
    with pytest.raises(ConfigError, match="slow_receiver_behavior"):
        bus.check(config, "risky")
    config = Config({"topics": [{"name": "short", "source": {"transport": "lbtsmx"}}]})
    assert (bus.longest(config, "fine"), bus.longest(config, "short")) == (None, 8192 - 16)
    WriteOptions.of({}, "stream").bus.check(config, "risky")


def test_every_option_says_what_it_takes_and_means() -> None:
    assert all(row.takes and row.meaning.endswith(".") for row in WRITE)
    assert len({row.name.lower() for row in WRITE}) == len(WRITE)
