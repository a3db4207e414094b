from __future__ import annotations

import pytest

from ipcbus.config import ReceiverOptions, SourceOptions
from ipcbus.config.relations import RELATIONS, Relation, refuse_contradiction
from ipcbus.errors import ConfigError
from tests.kit.cases import each_of

TSNI = SourceOptions.transport_topic_sequence_number_info_interval
THRESHOLD = SourceOptions.transport_topic_sequence_number_info_active_threshold
TIMEOUT = ReceiverOptions.transport_lbtipc_activity_timeout
CHECK = ReceiverOptions.delivery_control_loss_check_interval


def complaint(larger: int, smaller: int, relation: Relation) -> str:
    sections: dict[str, dict[str, bool | int | str]] = {}
    for row, value in ((relation.larger, larger), (relation.smaller, smaller)):
        sections.setdefault(row.scope, {})[row.name] = value
    return relation.complaint(sections)


def of(larger: object, smaller: object) -> Relation:
    """The one in the table for two options."""
    (found,) = (each for each in RELATIONS if (each.larger, each.smaller) == (larger, smaller))
    return found


@each_of("relation", RELATIONS, ids=lambda each: f"{each.larger.name}-{each.smaller.name}")
def test_defaults_satisfy_it(relation: Relation) -> None:
    assert relation.complaint({}) == ""


@each_of("relation", RELATIONS, ids=lambda each: f"{each.larger.name}-{each.smaller.name}")
def test_it_refuses_and_names_both(relation: Relation) -> None:
    text = complaint(max(relation.larger.minimum or 0, 1), relation.smaller.maximum or 0, relation)
    for row in (relation.larger, relation.smaller):
        assert f"option {row.name} (scope {row.scope}) = " in text
    assert relation.reason in text


def test_seconds_and_milliseconds() -> None:
    relation = of(THRESHOLD, TSNI)
    assert complaint(4, 1000, relation) == ""
    assert complaint(4, 1001, relation) == (
        "option transport_topic_sequence_number_info_active_threshold (scope source) = 4 s is less than 4 times option "
        "transport_topic_sequence_number_info_interval (scope source) = 1001 ms: the source must send several of "
        "them, or a receiver may not notice the loss of the last messages. Set "
        "transport_topic_sequence_number_info_active_threshold to at least 5 s, or "
        "transport_topic_sequence_number_info_interval to at most 1000 ms, or "
        "transport_topic_sequence_number_info_interval to 0"
    )


def test_a_zero_that_is_no_quantity_limits_nothing() -> None:
    relation = of(THRESHOLD, TSNI)
    assert complaint(0, 100_000, relation) == ""
    assert complaint(1, 0, relation) == ""
    assert complaint(1, 0, of(TIMEOUT, CHECK)) == ""


def test_a_time_that_is_measured_limits_nothing() -> None:
    backoff, ignore = (
        ReceiverOptions.transport_lbtru_nak_backoff_interval,
        SourceOptions.transport_lbtru_ignore_interval,
    )
    assert complaint(-1, 500, of(backoff, ignore)) == complaint(200, -1, of(backoff, ignore)) == ""
    assert "less than 2 times" in complaint(200, 500, of(backoff, ignore))


def test_strict() -> None:
    relation = of(TIMEOUT, CHECK)
    assert complaint(251, 250, relation) == ""
    text = complaint(250, 250, relation)
    assert "= 250 ms is not more than option" in text
    assert "at least 251 ms" in text
    assert "at most 249 ms" in text


def test_a_cure_is_one_that_the_table_accepts() -> None:
    relation = of(TIMEOUT, SourceOptions.transport_lbtipc_sm_interval)
    assert complaint(2, 1, relation) == ""
    assert complaint(1, 10_000, relation).endswith("Set transport_lbtipc_activity_timeout to at least 20000 ms")
    text = complaint(100, 2**31 - 1, relation)
    assert text.endswith("Set transport_lbtipc_sm_interval to at most 50 ms")


def test_smx_is_never_source_paced() -> None:
    both = {"transport": "lbtsmx", "transport_lbtipc_behavior": "source_paced"}
    with pytest.raises(ConfigError, match="'lbtsmx' and .*'source_paced'.*LBT-SMX is receiver-paced only"):
        refuse_contradiction(both)
    for name, other in (("transport", "lbtipc"), ("transport_lbtipc_behavior", "receiver_paced")):
        refuse_contradiction({**both, name: other})
        refuse_contradiction({key: value for key, value in both.items() if key != name})
