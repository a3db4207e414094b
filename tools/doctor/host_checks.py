"""Checks of this host for `ipcbus doctor`: shared memory, limits, processors, clock.

Every check reads files below a root directory and asks the system through `Host`, so that tests can replace the host.
"""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ipcbus_tools.common import number, size
from ipcbus_tools.doctor.diagnosis import FINDING, OK, UNKNOWN, Check
from ringbuf import segment

if TYPE_CHECKING:
    from collections.abc import Iterable

_MIB = 1 << 20
_ROOM = 8 * _MIB
"""A context with a session of each transport takes about 6 MiB with default windows."""
_INODES = 64
_FULL = 0.9
_FILES = 256
"""Least limit of descriptors: a context takes about 12, and each of its sessions some more."""
_GOOD_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
_UDP_BUFFER = 8 * _MIB
"""Default of the options transport_*_receiver_socket_buffer."""
_SYSTEM_UIDS = 1000


@dataclass(frozen=True, slots=True)
class LiveProcess:
    """A process with live contexts."""

    pid: int
    uid: int
    spinning: int


@dataclass(frozen=True)
class Host:
    """The host that is checked."""

    root: Path = Path("/")
    shared_memory: Path = segment.ROOT
    live: tuple[LiveProcess, ...] = ()
    uid: int = field(default_factory=os.geteuid)

    def read(self, path: str) -> str | None:
        """Returns the text of a file; None when the file does not exist or cannot be read."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (self.root / path).read_text()
        return None

    def lines(self, path: str) -> list[str]:
        """Returns the lines of a file; empty when it cannot be read."""
        return (self.read(path) or "").splitlines()


def check_host(host: Host) -> tuple[Check, ...]:
    """Returns all checks of this module."""
    return (
        shared_memory(host),
        remove_ipc(host),
        open_files(host),
        locked_memory(host),
        process_limit(host),
        processors(host),
        clock_source(host),
        huge_pages(host),
        udp_buffers(host),
    )


def shared_memory(host: Host) -> Check:
    """Checks the size and use of /dev/shm, whether it can be written, and its file system."""
    name, path = "shared memory", host.shared_memory
    try:
        limits = os.statvfs(path)
    except OSError as error:
        return Check(name, UNKNOWN, f"{path}: {error.strerror}", f"mount a tmpfs: mount -t tmpfs tmpfs {path}")
    total, free = limits.f_blocks * limits.f_frsize, limits.f_bavail * limits.f_frsize
    kind = _mounted(host, path)
    found = f"{path} has {size(total)}, {size(total - free)} used, {size(free)} free" if total else f"{path}: no limit"
    if limits.f_files:
        found += f"; {number(limits.f_ffree)} of {number(limits.f_files)} inodes free"
    if kind not in ("tmpfs", ""):
        cure = f"mount a tmpfs there: mount -t tmpfs tmpfs {path}"
        return Check(name, FINDING, f"{found}; its file system is {kind}, so that messages go to a disk", cure)
    if limits.f_flag & os.ST_RDONLY:
        return Check(name, FINDING, f"{path} is mounted read-only", f"mount -o remount,rw {path}")
    if not os.access(path, os.W_OK | os.X_OK):
        return Check(name, FINDING, f"{path} cannot be written by this user", f"chmod 1777 {path}")
    more = "remove leftovers (ipcbus doctor --reclaim), or make it larger: docker run --shm-size=1g, or "
    if total and (free < _ROOM or free < (1 - _FULL) * total):
        return Check(name, FINDING, found, f"{more}mount -o remount,size=1g {path}")
    if limits.f_files and limits.f_ffree < _INODES:
        return Check(name, FINDING, found, f"{more}mount -o remount,nr_inodes=100k {path}")
    return Check(name, OK, found)


def _mounted(host: Host, path: Path) -> str:
    """Returns the type of the file system at a path; empty when it is not known."""
    mounts = _mounts(host)
    return next((mounts[str(each)][2] for each in (path, *path.parents) if str(each) in mounts), "")


def _mounts(host: Host) -> dict[str, list[str]]:
    """Returns the fields of each mount by its directory."""
    return {fields[1]: fields for line in host.lines("proc/self/mounts") if len(fields := line.split(" ")) > 3}


def remove_ipc(host: Host) -> Check:
    """Checks whether systemd-logind removes the shared memory of users who log out."""
    name = "RemoveIPC"
    if not (host.root / "run/systemd/users").exists():
        return Check(name, OK, "systemd-logind does not run here, so that shared memory outlives a log-out")
    setting = "yes"
    folders = [host.root / top / "systemd" for top in ("usr/lib", "run", "etc")]
    drop_ins = {file.name: file for folder in folders for file in folder.glob("logind.conf.d/*.conf")}
    # The main file comes first, then the drop-ins in the order of their names; the last setting wins.
    main = next((f / "logind.conf" for f in reversed(folders) if (f / "logind.conf").exists()), None)
    for file in (*([main] if main else []), *(drop_ins[each] for each in sorted(drop_ins))):
        with contextlib.suppress(OSError):
            for line in file.read_text(errors="replace").splitlines():
                key, _, value = line.partition("=")
                if key.strip() == "RemoveIPC" and value.strip():
                    setting = value.strip().lower()
    if setting in ("no", "false", "off", "0", "n", "f"):
        return Check(name, OK, "RemoveIPC=no: shared memory outlives a log-out")
    users = sorted({host.uid, *(each.uid for each in host.live)})
    users = [uid for uid in users if uid >= _SYSTEM_UIDS and not _lingers(host, uid)]
    if not users:
        return Check(name, OK, "RemoveIPC=yes, which spares system users and users who linger")
    return Check(
        name,
        FINDING,
        f"RemoveIPC=yes: when the last session of user {', '.join(map(_name, users))} ends, systemd-logind removes "
        "shared memory that is in use",
        "write RemoveIPC=no under [Login] in /etc/systemd/logind.conf.d/ipcbus.conf and restart systemd-logind, or run "
        "loginctl enable-linger for the user",
    )


def _lingers(host: Host, uid: int) -> bool:
    return (host.root / "var/lib/systemd/linger" / _name(uid)).exists()


def _name(uid: int) -> str:
    from ipcbus.stats.processes import user_name

    return user_name(uid)


def open_files(host: Host) -> Check:
    """Checks the limits of descriptors: of this shell, of processes with contexts, and of the system."""
    name = "open files"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"limit {_limit(soft)} a process (hard limit {_limit(hard)})"
    system = (host.read("proc/sys/fs/file-nr") or "").split()
    if len(system) == 3 and int(system[0]) > _FULL * int(system[2]):
        return Check(
            name, FINDING, f"{system[0]} of {system[2]} files of the system are open", "raise the sysctl fs.file-max"
        )
    for each in host.live:
        with contextlib.suppress(psutil.Error, OSError):
            process = psutil.Process(each.pid)
            limit, used = process.rlimit(psutil.RLIMIT_NOFILE)[0], process.num_fds()
            if limit > 0 and used > _FULL * limit:
                return Check(
                    name,
                    FINDING,
                    f"pid {each.pid} has {used} of {limit} descriptors open",
                    f"raise its limit: prlimit --pid {each.pid} --nofile={4 * limit}",
                )
    if 0 <= soft < _FILES:
        return Check(name, FINDING, found, "raise it: ulimit -n 4096, LimitNOFILE= of the service, docker run --ulimit")
    return Check(name, OK, found)


def locked_memory(host: Host) -> Check:
    """Checks the limit of locked memory, which matters to processes that lock all their memory."""
    name = "locked memory"
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    for each in host.live:
        status = dict(line.split(":", 1) for line in host.lines(f"proc/{each.pid}/status") if ":" in line)
        locked = int(status.get("VmLck", "0").split()[0]) * 1024
        limit = -1
        with contextlib.suppress(psutil.Error, OSError):
            limit = psutil.Process(each.pid).rlimit(psutil.RLIMIT_MEMLOCK)[0]
        if locked and limit > 0 and locked + _ROOM > limit and each.uid != 0:
            return Check(
                name,
                FINDING,
                f"pid {each.pid} has locked {size(locked)} of {size(limit)}: a further session cannot be mapped",
                "raise the limit: ulimit -l unlimited, LimitMEMLOCK= of the service, docker run --ulimit memlock=-1",
            )
    unit = "no limit" if soft < 0 else f"limit {size(soft)}"
    return Check(
        name, OK, f"{unit}; ipcbus locks no memory itself, and no live process with a context is near its limit"
    )


def process_limit(host: Host) -> Check:
    """Checks the limits of processes and threads: each context in embedded mode has one thread."""
    name = "processes and threads"
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    groups = [
        (used, limit)
        for folder in _cgroups(host, "pids")
        if (limit := _number(host.read(f"{folder}/pids.max"))) is not None
        and (used := _number(host.read(f"{folder}/pids.current"))) is not None
    ]
    for used, limit in groups:
        if used > _FULL * limit:
            return Check(
                name,
                FINDING,
                f"{used:.0f} of {limit:.0f} processes and threads of this control group run",
                "raise the limit: TasksMax= of the service, docker run --pids-limit",
            )
    if soft >= 0 and host.uid != 0:
        mine = 0
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                mine += process.num_threads() if process.uids().real == host.uid else 0
        if mine > _FULL * soft:
            return Check(
                name, FINDING, f"{mine} of {soft} processes and threads of this user run", "raise it: ulimit -u"
            )
    group = f", {min(limit for _, limit in groups):.0f} in this control group" if groups else ""
    return Check(name, OK, f"limit {_limit(soft)} a user{group}")


def processors(host: Host) -> Check:
    """Checks the number of usable processors against the number of threads that spin."""
    name = "processors"
    affinity = len(os.sched_getaffinity(0))
    for each in host.live:
        if each.spinning:
            with contextlib.suppress(psutil.Error, OSError):
                affinity = max(affinity, len(psutil.Process(each.pid).cpu_affinity()))
    quota = min(_quotas(host), default=float("inf"))
    usable = min(affinity, quota)
    spinning = sum(each.spinning for each in host.live)
    found = f"{affinity} usable"
    if quota != float("inf"):
        found += f", of which the control group grants the time of {quota:g}"
    found += f"; {number(spinning)} threads of live contexts spin (busy_wait)"
    if not spinning or spinning < usable:
        return Check(name, OK, found)
    pids = ", ".join(str(each.pid) for each in host.live if each.spinning)
    return Check(
        name,
        FINDING,
        f"{found} in pid {pids}, which leaves no processor to anything else",
        'set transport_*_receiver_thread_behavior to "pend" in some of them, or give the host more processors',
    )


def _quotas(host: Host) -> Iterable[float]:
    """Yields the processors that this control group and those above it grant."""
    for folder in _cgroups(host, "cpu"):
        fields = (host.read(f"{folder}/cpu.max") or "").split()
        if len(fields) == 2 and fields[0] != "max":
            yield int(fields[0]) / int(fields[1])
        quota, period = (
            _number(host.read(f"{folder}/cpu.cfs_quota_us")),
            _number(host.read(f"{folder}/cpu.cfs_period_us")),
        )
        if quota is not None and period and quota > 0:
            yield quota / period


def _cgroups(host: Host, controller: str) -> list[str]:
    """Returns the directories of this process's control groups for a controller, from the innermost to the root."""
    found = []
    for line in host.lines("proc/self/cgroup"):
        _, names, path = [*line.split(":", 2), "", ""][:3]
        if names and controller not in names.split(","):
            continue
        top = f"sys/fs/cgroup/{names}" if names else "sys/fs/cgroup"
        parts = [part for part in path.split("/") if part]
        found += [f"{top}/{'/'.join(parts[:count])}".rstrip("/") for count in range(len(parts), -1, -1)]
    return found


def clock_source(host: Host) -> Check:
    """Checks the clock source of the kernel."""
    name, folder = "clock source", "sys/devices/system/clocksource/clocksource0"
    source = (host.read(f"{folder}/current_clocksource") or "").strip()
    if not source:
        return Check(name, OK, "the system does not name it")
    if source in _GOOD_CLOCKS:
        return Check(name, OK, f"{source}, read without a system call")
    better = [each for each in (host.read(f"{folder}/available_clocksource") or "").split() if each in _GOOD_CLOCKS]
    cure = f"echo {better[0]} > /{folder}/current_clocksource" if better else "see in dmesg why the kernel left tsc"
    return Check(name, FINDING, f"{source}: each reading of the clock is a system call of about a microsecond", cure)


def huge_pages(host: Host) -> Check:
    """Checks whether every small object takes a huge page."""
    name = "huge pages"
    options = _mounts(host).get(str(segment.ROOT), ["", "", "", ""])[3]
    setting = (host.read("sys/kernel/mm/transparent_hugepage/shmem_enabled") or "").strip()
    huge = next((each.partition("=")[2] for each in options.split(",") if each.startswith("huge=")), "never")
    chosen = setting.partition("[")[2].partition("]")[0]
    if chosen in ("deny", "force"):
        huge = {"deny": "never", "force": "always"}[chosen]
    found = f"huge={huge} for {segment.ROOT}"
    if huge == "always":
        return Check(
            name,
            FINDING,
            f"{found}: each object, however small, takes whole pages of 2 MiB",
            f"mount -o remount,huge=within_size {segment.ROOT}, which gives huge pages to large rings only",
        )
    more = "; windows of 2 MiB and more may gain from huge=within_size" if huge == "never" else ""
    return Check(name, OK, found + more)


def udp_buffers(host: Host) -> Check:
    """Checks whether the system grants the receive buffers that sockets over UDP ask for."""
    name = "UDP buffers"
    limit = _number(host.read("proc/sys/net/core/rmem_max"))
    if limit is None:
        return Check(name, OK, "the system does not show its limit")
    found = f"net.core.rmem_max is {size(limit)}, a socket asks for {size(_UDP_BUFFER)}"
    more = (
        ""
        if limit >= _UDP_BUFFER
        else "; raise the sysctl where LBT-RU or LBT-RM loses datagrams (socket_dgrams_overrun)"
    )
    return Check(name, OK, found + more)


def _number(text: str | None) -> float | None:
    with contextlib.suppress(ValueError):
        return float(text) if text else None
    return None


def _limit(value: int) -> str:
    return "none" if value < 0 else number(value)
