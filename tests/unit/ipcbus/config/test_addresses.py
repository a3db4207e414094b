from __future__ import annotations

import pytest

from ipcbus.config import ContextOptions, Option, SourceOptions
from ipcbus.config.addresses import daemons, joined
from ipcbus.config.option_values import Refused
from tests.kit.cases import each_of

GROUP = ContextOptions.resolver_multicast_address
ANY_GROUP = SourceOptions.transport_lbtrm_multicast_address
INTERFACE = SourceOptions.transport_lbtru_interface
INTERFACE_OR_NONE = ContextOptions.resolver_multicast_interface
DAEMON = ContextOptions.resolver_unicast_daemon


@each_of(
    ("row", "text", "kept"),
    [
        (GROUP, "224.9.10.11", "224.9.10.11"),
        (GROUP, "FF15:0::0001", "ff15::1"),
        (ANY_GROUP, "0.0.0.0", "0.0.0.0"),
        (ANY_GROUP, "224.10.10.10", "224.10.10.10"),
        (INTERFACE, "10.1.2.3", "10.1.2.3"),
        (INTERFACE, "0.0.0.0", "0.0.0.0"),
        (INTERFACE, "::1", "::1"),
        (INTERFACE, "10.1.2.3/24", "10.1.2.3/24"),
        (INTERFACE, "fe80::/10", "fe80::/10"),
        (INTERFACE, "eth0", "eth0"),
        (INTERFACE, '"eth0"', "eth0"),
        (INTERFACE_OR_NONE, "", ""),
        (INTERFACE_OR_NONE, "lo", "lo"),
        (DAEMON, "", ""),
        (DAEMON, "127.0.0.1:15380", "127.0.0.1:15380"),
        (DAEMON, "10.0.0.1:1, 10.0.0.2:2;[::1]:3;10.0.0.1:1", "10.0.0.1:1;10.0.0.2:2;[::1]:3"),
    ],
)
def test_kept_as(row: Option[str], text: str, kept: str) -> None:
    assert row.check(text) == row.parse(text) == kept
    assert row.check(kept) == kept


@each_of(
    ("row", "text"),
    [
        *((GROUP, text) for text in ("", "10.0.0.1", "0.0.0.0", "all", "224.9.10", "224.9.10.11/8", "224.9.10.11:1")),
        *((ANY_GROUP, text) for text in ("", "10.0.0.1")),
        *(
            (INTERFACE, text)
            for text in ("", "10.0.0.300", "10.0.0", "224.1.1.1", "a b", "x" * 16, "::g", "a/b", "1::2::")
        ),
        *((INTERFACE_OR_NONE, text) for text in (" ", "10.0.0.300")),
        *(
            (DAEMON, text)
            for text in ("localhost:1", "10.0.0.1", "10.0.0.1:0", "10.0.0.1:65536", ";", "::1:5", "[10.0.0.1]:5")
        ),
        *((DAEMON, text) for text in ("224.1.1.1:5", "0.0.0.0:5", "10.0.0.1:\u0661", "10.0.0.1:-1", "10.0.0.1:1;")),
        (DAEMON, ";".join(f"10.0.0.{n}:1" for n in range(6))),
    ],
)
def test_refused(row: Option[str], text: str) -> None:
    with pytest.raises(Refused, match="it must be ") as caught:
        row.check(text)
    assert row.form is not None
    assert row.form.words in str(caught.value)


def test_daemons_are_hosts_and_ports() -> None:
    assert daemons("10.0.0.1:1;[::1]:2") == (("10.0.0.1", 1), ("::1", 2))
    assert ";".join(joined(*each) for each in daemons("10.0.0.1:1;[::1]:2")) == "10.0.0.1:1;[::1]:2"
