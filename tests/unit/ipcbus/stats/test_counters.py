from __future__ import annotations

import numpy as np

from ipcbus.stats import COUNTERS, Counter, counters_of
from ipcbus.stats.counters import STRUCT_OF, values
from ipcbus.wire import wire_layout as wire
from ringbuf import layout as ring
from tests.kit.cases import each_of

STRUCTS = {**ring.STRUCTS, **wire.STRUCTS}

# 64-bit words of the layout that are no counters but facts, positions, or the counters' container.
FACTS = {
    "RegistryHeader": {"magic", "context_id", "start_ns", "version"},
    "RingHeader": {"magic", "total_bytes", "capacity", "tail", "intent", "start_ns", "blocked_since"},
    "TopicLine": {
        "published",
        "continued",
        "continued_next",
    },  # lbm_msgs_sent and fragments_sent are reckoned from them
    "Slot": {"position", "context_id", "joined_ns", "channel"},
    "UplinkBoard": {"version", "clients_max", "data_rate", "retransmit_rate", "limited_since", "slowest"},
    "ReceptionBoard": {"version"},
    "RegistryEntry": {"window", "since_ns", "context_id", "gmd_identity"},
    "RecorderEntry": {"since_ns", "shown_ns", "behind_ns"},  # the counter behind_ns is reckoned from both
}


@each_of("counter", COUNTERS, ids=lambda counter: f"{counter.of}.{counter.name}")
def test_stands_where_the_table_says(counter: Counter) -> None:
    fields = STRUCTS[STRUCT_OF[counter.of]].fields
    assert fields is not None
    assert not counter.field or fields[counter.field][0].base in (np.dtype("<u8"), np.dtype("<u4"))


@each_of("of", STRUCT_OF)
def test_every_counter_of_the_layout_is_in_the_table(of: str) -> None:
    fields = STRUCTS[STRUCT_OF[of]].fields
    assert fields is not None
    words = {name for name, (dtype, *_) in fields.items() if dtype == np.dtype("<u8")}
    assert words - FACTS[STRUCT_OF[of]] <= {counter.field for counter in counters_of(of)}


@each_of("of", STRUCT_OF)
def test_names_are_unique(of: str) -> None:
    names = [counter.name for counter in counters_of(of)]
    assert len(set(names)) == len(names) > 0


@each_of("counter", COUNTERS, ids=lambda counter: f"{counter.of}.{counter.name}")
def test_has_a_unit_and_one_sentence(counter: Counter) -> None:
    assert counter.unit
    assert counter.meaning[0].isupper()
    assert counter.meaning.endswith(".")
    assert ". " not in counter.meaning


def test_values_come_from_their_fields() -> None:
    line = np.zeros((), wire.TOPIC_LINE)
    line["sequence_next"], line["bytes_sent"] = 9, 2**63 + 5
    found = values("source", line, {"lbm_msgs_sent": 7})
    assert (found["lbm_msgs_sent"], found["sequence_next"], found["bytes_sent"]) == (7, 9, 2**63 + 5)
    assert all(type(value) is int for value in found.values())


def test_computed_values_are_given() -> None:
    header = np.zeros((), ring.RING_HEADER)
    assert values("session", header, {"num_clients": 3})["num_clients"] == 3
    assert values("session", header)["num_clients"] == 0
