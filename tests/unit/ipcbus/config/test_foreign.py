from __future__ import annotations

import re

from ipcbus.config import SCOPES
from ipcbus.config.foreign import WITHOUT_EFFECT


def test_no_option_of_ours_is_among_them() -> None:
    assert not [(scope, name) for scope in SCOPES for name in SCOPES[scope].rows if name in WITHOUT_EFFECT[scope]]


def test_names_are_names() -> None:
    assert all(re.fullmatch("[a-z0-9_]+", name) for names in WITHOUT_EFFECT.values() for name in names)


def test_the_ones_that_files_often_hold() -> None:
    assert {"resolver_cache", "request_tcp_port_low", "fd_management_type"} <= WITHOUT_EFFECT["context"]
    assert {"ume_late_join", "transport_tcp_coalesce_threshold", "transport_lbtrm_tgsz"} <= WITHOUT_EFFECT["source"]
    assert {"use_hotlink", "transport_lbtrm_preactivity_timeout"} <= WITHOUT_EFFECT["receiver"]
    assert "queue_enqueue_notification" in WITHOUT_EFFECT["event_queue"]
    assert "receiver_create_callback" in WITHOUT_EFFECT["wildcard_receiver"]
