from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ipcbus_tools.demo import telemetry
from tests.kit.cases import each_of

if TYPE_CHECKING:
    import pytest


@each_of("topic", telemetry.TOPICS)
def test_message_is_json_with_its_time(topic: str) -> None:
    found = json.loads(telemetry.message(topic))
    assert found["time_ns"] > 0
    assert len(found) > 1


def test_host_without_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.disk_io_counters", lambda: None)
    assert json.loads(telemetry.message("host.disk"))["read_bytes"] is None


def test_host_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError("not here")

    monkeypatch.setattr("psutil.net_io_counters", refuse)
    assert json.loads(telemetry.message("host.net"))["unknown"] == "not here"
