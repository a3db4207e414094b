"""The checks of `ipcbus doctor` on hosts that are made up, and what becomes of their results."""

from __future__ import annotations

import json
import os
import resource
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from ipcbus.errors import ConfigError
from ipcbus_tools.cli import cli
from ipcbus_tools.doctor import bus_checks, host_checks, kernel_checks
from ipcbus_tools.doctor.diagnosis import Check, OtherLayout, result_of
from ipcbus_tools.doctor.host_checks import Host, LiveProcess
from ringbuf import wake

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
CLOCK = "sys/devices/system/clocksource/clocksource0"
ME = 1234


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(root=tmp_path, uid=ME)


def put(host: Host, path: str, text: str) -> None:
    """Writes a file of the made-up host."""
    file = host.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def volume(**given: int) -> SimpleNamespace:
    """What statvfs tells of a file system of 64 MiB that is empty, but for what is given."""
    usual = {
        "f_blocks": 64 * 256,
        "f_bavail": 64 * 256,
        "f_frsize": 4096,
        "f_files": 8192,
        "f_ffree": 8000,
        "f_flag": 0,
    }
    return SimpleNamespace(**usual | given)


@pytest.mark.parametrize(
    ("given", "state", "text"),
    [
        ({}, "ok", "64.0 MiB"),
        ({"f_bavail": 1024}, "finding", "4.0 MiB free"),
        ({"f_blocks": 1 << 20, "f_bavail": 1 << 16}, "finding", "256.0 MiB free"),
        ({"f_ffree": 3}, "finding", "3 of 8,192 inodes free"),
        ({"f_flag": os.ST_RDONLY}, "finding", "mounted read-only"),
        ({"f_blocks": 0, "f_bavail": 0, "f_files": 0, "f_ffree": 0}, "ok", "no limit"),
    ],
)
def test_shared_memory(
    host: Host, monkeypatch: pytest.MonkeyPatch, given: dict[str, int], state: str, text: str
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: volume(**given))
    found = host_checks.shared_memory(host)
    assert (found.state, text in found.found) == (state, True), found
    assert bool(found.cure) is (state != "ok")


def test_shared_memory_on_a_disk_or_missing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    put(host, "proc/self/mounts", "disk / ext4 rw 0 0\n")
    monkeypatch.setattr(os, "statvfs", lambda _: volume())
    assert "ext4" in host_checks.shared_memory(host).found
    monkeypatch.undo()
    missing = Host(root=host.root, shared_memory=host.root / "nowhere")
    assert host_checks.shared_memory(missing).state == "unknown"


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({}, "finding"),
        ({"etc/systemd/logind.conf": "[Login]\n#RemoveIPC=no\n"}, "finding"),
        ({"etc/systemd/logind.conf": "[Login]\nRemoveIPC=no\n"}, "ok"),
        ({"etc/systemd/logind.conf.d/x.conf": "[Login]\nRemoveIPC = no\n"}, "ok"),
        ({"usr/lib/systemd/logind.conf": "RemoveIPC=no", "etc/systemd/logind.conf": "RemoveIPC=yes"}, "finding"),
        (
            {
                "usr/lib/systemd/logind.conf.d/a.conf": "RemoveIPC=no",
                "etc/systemd/logind.conf.d/b.conf": "RemoveIPC=yes",
            },
            "finding",
        ),
        ({"var/lib/systemd/linger/1234": ""}, "ok"),
    ],
)
def test_remove_ipc(host: Host, files: dict[str, str], state: str) -> None:
    assert host_checks.remove_ipc(host).state == "ok"  # logind does not run
    put(host, "run/systemd/users/1234", "")
    for path, text in files.items():
        put(host, path, text)
    found = host_checks.remove_ipc(host)
    assert found.state == state
    assert ("enable-linger" in found.cure) is (state == "finding")


def test_remove_ipc_spares_system_users_but_not_those_of_live_contexts(host: Host) -> None:
    put(host, "run/systemd/users/0", "")
    assert host_checks.remove_ipc(Host(root=host.root, uid=0)).state == "ok"
    live = (LiveProcess(1, ME, 0),)
    assert str(ME) in host_checks.remove_ipc(Host(root=host.root, uid=0, live=live)).found


def test_open_files(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (32, 4096))
    found = host_checks.open_files(host)
    assert (found.state, "32" in found.found, "ulimit -n" in found.cure) == ("finding", True, True)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert host_checks.open_files(host).state == "ok"
    put(host, "proc/sys/fs/file-nr", "980\t0\t1000\n")
    assert "fs.file-max" in host_checks.open_files(host).cure


def test_open_files_of_a_live_process(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = SimpleNamespace(rlimit=lambda _: (100, 100), num_fds=lambda: 95)
    monkeypatch.setattr("psutil.Process", lambda _: mine)
    found = host_checks.open_files(Host(root=host.root, live=(LiveProcess(77, ME, 0),)))
    assert "pid 77 has 95 of 100" in found.found


def test_locked_memory(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.Process", lambda _: SimpleNamespace(rlimit=lambda _: (8 * MIB, 8 * MIB)))
    live = Host(root=host.root, live=(LiveProcess(77, ME, 0),))
    put(host, "proc/77/status", "Name:\tx\nVmLck:\t       0 kB\n")
    assert host_checks.locked_memory(live).state == "ok"
    put(host, "proc/77/status", "Name:\tx\nVmLck:\t    4096 kB\n")
    assert "pid 77 has locked 4.0 MiB of 8.0 MiB" in host_checks.locked_memory(live).found


def test_process_limit(host: Host) -> None:
    put(host, "proc/self/cgroup", "0::/a/b\n")
    put(host, "sys/fs/cgroup/a/pids.max", "100")
    put(host, "sys/fs/cgroup/a/pids.current", "50")
    put(host, "sys/fs/cgroup/a/b/pids.max", "max")
    assert "100 in this control group" in host_checks.process_limit(host).found
    put(host, "sys/fs/cgroup/a/pids.current", "95")
    assert host_checks.process_limit(host).state == "finding"


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        ("0::/a/b\n", {"sys/fs/cgroup/a/cpu.max": "50000 100000", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}),
        (
            "4:cpu,cpuacct:/a\n",
            {
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000",
            },
        ),
    ],
)
def test_processors_that_a_control_group_grants(host: Host, cgroup: str, files: dict[str, str]) -> None:
    spinning = Host(root=host.root, live=(LiveProcess(os.getpid(), ME, 1),))
    put(host, "proc/self/cgroup", cgroup)
    for path, text in files.items():
        put(host, path, text)
    assert "0.5" in host_checks.processors(host).found
    assert host_checks.processors(host).state == "ok"  # nothing spins
    assert host_checks.processors(spinning).state == "finding"


@pytest.mark.parametrize(
    ("source", "state"), [("tsc", "ok"), ("kvm-clock", "ok"), ("hpet", "finding"), ("acpi_pm", "finding"), ("", "ok")]
)
def test_clock_source(host: Host, source: str, state: str) -> None:
    put(host, f"{CLOCK}/current_clocksource", source)
    put(host, f"{CLOCK}/available_clocksource", "tsc hpet acpi_pm")
    found = host_checks.clock_source(host)
    assert (found.state, "echo tsc" in found.cure) == (state, state == "finding")


@pytest.mark.parametrize(
    ("options", "setting", "state"),
    [
        ("rw", "always within_size advise [never] deny force", "ok"),
        ("rw,huge=always", "always within_size advise [never] deny force", "finding"),
        ("rw,huge=always", "always within_size advise never [deny] force", "ok"),
        ("rw", "always within_size advise never deny [force]", "finding"),
        ("rw,huge=within_size", "", "ok"),
    ],
)
def test_huge_pages(host: Host, options: str, setting: str, state: str) -> None:
    put(host, "proc/self/mounts", f"tmpfs /dev/shm tmpfs {options} 0 0\n")
    put(host, "sys/kernel/mm/transparent_hugepage/shmem_enabled", setting)
    assert host_checks.huge_pages(host).state == state


def test_what_the_kernel_refuses_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {check.state for check in kernel_checks.check_kernel()} == {"ok"}
    monkeypatch.setattr(wake, "asymmetric", lambda: False)

    def refused(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", refused)
    monkeypatch.setattr(os, "eventfd", refused)
    found = {check.name: check for check in kernel_checks.check_kernel() if check.state == "finding"}
    assert set(found) == {"membarrier", "memfd", "OFD locks", "epoll, eventfd, timerfd, pidfd"}
    assert all("seccomp" in check.cure or "kernel" in check.cure for check in found.values())


def test_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise ConfigError("Spark needs Java, and no java is on PATH; install Java 17")

    monkeypatch.setattr("ipcbus.spark.session.check_java", missing)
    found = kernel_checks.java()
    assert (found.state, found.cure) == ("finding", "install Java 17")
    monkeypatch.setattr("ipcbus.spark.session.check_java", lambda: "version 17 (/java)")
    assert kernel_checks.java().found == "version 17 (/java)"
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert kernel_checks.java().state == "ok"


def checks(*states: str) -> tuple[Check, ...]:
    return tuple(Check(f"check {number}", state, "it is so", "mend it") for number, state in enumerate(states))


def test_result() -> None:
    other = OtherLayout("d", 1, 2, 3, "u", "0.0", 4, 0, "restart")
    assert result_of(checks("ok", "ok"), ()) == "clean"
    assert result_of(checks("ok", "unknown"), ()) == "not_checkable"
    assert result_of(checks("ok", "unknown", "finding"), ()) == "findings"
    assert result_of(checks("ok", "unknown"), (), (other,)) == "findings"


@pytest.mark.parametrize(("states", "code"), [(("ok",), 0), (("ok", "finding"), 1), (("ok", "unknown"), 2)])
def test_exit_codes(domain: str, monkeypatch: pytest.MonkeyPatch, states: tuple[str, ...], code: int) -> None:
    monkeypatch.setattr(host_checks, "check_host", lambda _: checks(*states))
    monkeypatch.setattr(kernel_checks, "check_kernel", lambda: ())
    monkeypatch.setattr(kernel_checks, "java", lambda: Check("java", "ok", "17"))
    result = CliRunner().invoke(cli, ["doctor", "--domain", domain])
    assert result.exit_code == code
    assert result.stdout.count("cure: mend it") == len(states)
    result = CliRunner().invoke(cli, ["doctor", "--json", "--reclaim", "--domain", domain])
    assert (result.exit_code, json.loads(result.stdout)["exit_code"]) == (code, code)


def test_shared_memory_that_cannot_be_listed_is_not_checkable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Any) -> Any:  # noqa: ANN401
        raise PermissionError(13, "Permission denied", "/dev/shm")

    monkeypatch.setattr(bus_checks, "find_objects", refused)
    monkeypatch.setattr(host_checks, "check_host", lambda _: checks("ok"))
    monkeypatch.setattr(kernel_checks, "check_kernel", lambda: ())
    monkeypatch.setattr(kernel_checks, "java", lambda: Check("java", "ok", "17"))
    result = CliRunner().invoke(cli, ["doctor"])
    assert result.exit_code == 2
    assert "/dev/shm: Permission denied" in result.stdout
