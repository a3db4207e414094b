"""`ipcbus doctor` and the sweep of a new context, against real processes that are killed, alive, or another user's."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

from ipcbus import Context
from ipcbus.resolution.local import object_names, stale_cleanup
from ipcbus.wire import wire_layout
from ipcbus_tools import json_schemas
from ipcbus_tools.cli import cli
from ringbuf import liveness, segment
from ringbuf.layout import MAGIC
from tests.kit.look import ROOT, objects
from tests.rings.children import Children
from tests.rings.systems import NOBODY, in_small_shm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

    from tests.kit.peers import PeerProcess, Peers
    from tests.kit.zygote import Zygote

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def domains(domain: str) -> Iterator[list[str]]:
    """Domains of this test besides its own; their objects are gone afterwards."""
    more = [domain[:-1] + letter for letter in "ABC"]
    yield more
    left = [name for each in more for name in objects(each)]
    for name in left:
        (Path(ROOT) / name).unlink()
    assert left == []


def doctor(*arguments: str, domains: list[str]) -> Result:
    return CliRunner().invoke(cli, ["doctor", *(each for name in domains for each in ("--domain", name)), *arguments])


def document(*arguments: str, domains: list[str]) -> dict[str, Any]:
    """What it prints with --json: one line that the schema describes, and the exit code stands in it."""
    result = doctor("--json", *arguments, domains=domains)
    assert result.stdout.count("\n") == 1, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    jsonschema.validate(found, json_schemas.schema("doctor"))
    assert result.exit_code == found["exit_code"]
    return found


def open_peer(peers: Peers, domain: str, topic: str = "t") -> PeerProcess:
    """A process with a context and a source in a domain."""
    peer = peers.start("")
    peer.do("open", domain=domain)
    peer.do("source", topic=topic)
    return peer


def test_what_killed_processes_left_in_several_domains_is_found_and_reclaimed(
    domain: str, domains: list[str], peers: Peers
) -> None:
    everywhere = [domain, *domains]
    living = [open_peer(peers, each) for each in everywhere[:2]]
    for peer in living:
        peer.pause()  # so that no sweep of theirs comes first; a process that is stopped is not dead
    alive = {each: objects(each) for each in everywhere}
    doomed = [open_peer(peers, each) for each in everywhere]
    for peer in doomed:
        peer.kill()
    left = {each: objects(each) for each in everywhere}

    found = document(domains=everywhere)
    assert found["result"] == "findings"
    assert found["contexts"] == 2
    assert {each["domain"]: each["objects"] for each in found["leftovers"]} == dict.fromkeys(everywhere, 4)
    assert all(each["bytes"] > 4 << 20 and not each["reclaimed"] and each["cure"] for each in found["leftovers"])
    assert {each["uid"] for each in found["leftovers"]} == {os.geteuid()}
    assert {each: objects(each) for each in everywhere} == left  # looking changes nothing

    said = doctor(domains=everywhere).stdout
    assert "ipcbus doctor --reclaim" in said
    assert "4 dead contexts left objects behind" in said

    found = document("--reclaim", domains=everywhere)
    assert found["reclaimed_objects"] == 16
    assert found["reclaimed_bytes"] > 4 * (4 << 20)
    assert [each["reclaimed"] for each in found["leftovers"]] == [True] * 4
    assert (found["result"] == "findings") is bool(host_findings(found))
    assert {each: objects(each) for each in everywhere} == alive
    assert document(domains=everywhere)["leftovers"] == []
    for peer in living:
        peer.resume()
        assert peer.do("send", topic="t", count=3)
        peer.end()


def test_a_domain_without_a_context_is_said(domain: str, domains: list[str], peers: Peers) -> None:
    peer = open_peer(peers, domain)
    said = doctor(domains=[domain, domains[0]]).stdout
    assert f"domain '{domains[0]}' has no context; 'ipcbus list --all'" in said
    assert f"domain '{domain}' has no context" not in said
    peer.end()


def host_findings(found: dict[str, Any]) -> list[str]:
    """What it found of the host, which a test cannot choose."""
    return [check["name"] for check in found["checks"] if check["state"] == "finding"]


def test_reclaiming_twice_at_once_is_safe(domain: str, peers: Peers) -> None:
    dead = [open_peer(peers, domain) for _ in range(4)]
    for peer in dead:
        peer.pause()  # one that lives on for a moment would reclaim what the others leave
    for peer in dead:
        peer.kill()

    def reclaim() -> int:
        return int(document("--reclaim", domains=[domain])["reclaimed_objects"])

    with Children() as children:
        done = children.results([children.run(reclaim) for _ in range(2)])
    assert sum(done) == 16
    assert objects(domain) == []


@as_root
def test_leftovers_of_another_user_go_by_that_user_or_by_root(domain: str, peers: Peers) -> None:
    other = peers.start("")
    other.do("become", uid=NOBODY, gid=NOBODY)
    other.do("open", domain=domain)
    other.do("source", topic="t")
    mine = open_peer(peers, domain)
    other.kill()
    mine.kill()

    def as_third() -> dict[str, Any]:
        os.setgroups([])
        os.setresgid(NOBODY - 1, NOBODY - 1, NOBODY - 1)
        os.setresuid(NOBODY - 1, NOBODY - 1, NOBODY - 1)
        return document("--reclaim", domains=[domain])

    document(domains=[domain])  # what is imported late could not be read by another user
    with Children() as children:
        found = children.run(as_third).result()
    assert found["result"] == "findings"
    assert found["reclaimed_objects"] == 0
    assert all("belongs to user" in each["reason"] and "or as root" in each["cure"] for each in found["leftovers"])
    assert len(objects(domain)) == 8
    assert document("--reclaim", domains=[domain])["reclaimed_objects"] == 8
    assert objects(domain) == []


@as_root
def test_what_may_not_be_read_is_told_with_its_reason(domain: str) -> None:
    with Context(domain=domain) as context, Context({"context": {"registry_hidden": True}}, domain=domain):
        source = context.source("t")

        def as_nobody() -> dict[str, Any]:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            return document(domains=[domain])

        assert document(domains=[domain])["unreadable"] == []
        with Children() as children:
            found = children.run(as_nobody).result()
        assert found["result"] == "findings"
        rows = {each["source"]: each for each in found["unreadable"]}
        assert set(rows) == {source.source, ""}
        assert "no permission" in rows[source.source]["reason"]
        assert "shared_memory_group" in rows[source.source]["cure"]
        assert "Permission denied" in rows[""]["reason"]
        assert rows[""]["cure"]


def test_live_contexts_of_another_layout_are_told_and_stay(domain: str) -> None:
    name = object_names.registry(domain, 0x77)
    fd = segment.create(name, wire_layout.registry_bytes(1))
    ring = object_names.ring(domain, 0x77, 0)
    (Path(ROOT) / ring).touch()
    header = np.zeros((), wire_layout.REGISTRY_HEADER)
    header["magic"], header["layout_id"], header["pid"] = MAGIC, wire_layout.LAYOUT_ID ^ 1, 4711
    header["domain"], header["release"] = domain.encode(), b"9.9"
    os.pwrite(fd, header.tobytes(), 0)
    assert liveness.take(fd, 0)
    try:
        found = document("--reclaim", domains=[domain])
        assert found["result"] == "findings"
        (other,) = found["other_layouts"]
        assert (other["pid"], other["release"], other["sessions"]) == (4711, "9.9", 1)
        assert other["layout_id"] == wire_layout.LAYOUT_ID ^ 1
        assert found["unreadable"] == found["leftovers"] == []
        assert objects(domain) == [name, ring]
        assert "9.9" in doctor(domains=[domain]).stdout
    finally:
        os.close(fd)
    assert document("--reclaim", domains=[domain])["reclaimed_objects"] == 2


def test_spinning_contexts_are_counted_against_the_processors(domain: str) -> None:
    usable = len(os.sched_getaffinity(0))
    busy = {"context": {"transport_lbtipc_receiver_thread_behavior": "busy_wait"}}
    contexts = [Context(busy, domain=domain, operational_mode="sequential") for _ in range(usable)]
    try:
        (check,) = (each for each in document(domains=[domain])["checks"] if each["name"] == "processors")
        assert check["state"] == "finding"
        assert f"{usable} threads of live contexts spin" in check["found"]
        assert "pend" in check["cure"]
    finally:
        for context in contexts:
            context.close()
    (check,) = (each for each in document(domains=[domain])["checks"] if each["name"] == "processors")
    assert check["state"] == "ok"


def test_text_names_every_check_with_its_state(domain: str) -> None:
    found = document(domains=[domain])
    result = doctor(domains=[domain])
    for check in found["checks"]:
        assert any(line.startswith(check["state"]) and check["name"] in line for line in result.stdout.splitlines())
    assert result.exit_code == found["exit_code"]


# In every domain, in a /dev/shm that only the test sees.


def left_by_killed(domain: str, children: Children) -> None:
    """Opens a context with a source in a process, and kills the process."""

    def die() -> None:
        context = Context(domain=domain)
        context.source("t")
        os.kill(os.getpid(), signal.SIGKILL)

    assert children.run(die).wait() == -signal.SIGKILL


def in_own_shm(work: Any) -> Any:  # noqa: ANN401 - what the work returns
    """Runs it in a child that has a /dev/shm of its own, in which contexts also sweep other domains."""

    def run() -> Any:  # noqa: ANN401
        if not in_small_shm(256 << 20):
            return None
        os.environ.pop(stale_cleanup.OTHERS_OFF, None)
        with Children() as children:
            return work(children)

    with Children() as outer:
        found = outer.run(run).result()
    if found is None:
        pytest.skip("this system does not let tests have a /dev/shm of their own")
    return found


def test_a_new_context_reclaims_other_domains(zygote: Zygote) -> None:
    del zygote

    def work(children: Children) -> list[list[str]]:
        stale_cleanup.OTHERS_S = 60.0  # on a busy machine 5 ms may pass before anything was looked at
        found = []
        off = {"context": {"reclaim_other_domains": False}}
        with Context(off, domain="live") as living:
            living.source("t")
            alive = segment.names("")
            for domain in ("one", "two", "three with a name that is hashed"):
                left_by_killed(domain, children)
            found.append([name for name in segment.names("") if name not in alive])
            with Context(off, domain="new"):
                pass
            os.environ[stale_cleanup.OTHERS_OFF] = "0"
            with Context(domain="new"):
                pass
            found.append([name for name in segment.names("") if name not in alive])
            del os.environ[stale_cleanup.OTHERS_OFF]
            with Context(domain="new"):
                pass
            found.append(segment.names(""))
            found.append(alive)
        return found

    left, off, swept, alive = in_own_shm(work)
    assert len(left) == 4  # each new context took what the one before it had left
    assert off == left
    assert swept == alive


def test_doctor_reclaims_every_domain(zygote: Zygote) -> None:
    del zygote

    def work(children: Children) -> tuple[int, int, list[str], list[str]]:
        os.environ[stale_cleanup.OTHERS_OFF] = "0"
        with Context(domain="live"):
            alive = segment.names("")
            for domain in ("one", "two", "three with a name that is hashed"):
                left_by_killed(domain, children)
            found = document(domains=[])
            done = document("--reclaim", domains=[])
            assert {each["domain"] for each in done["leftovers"]} == {"one", "two", "three with a name that is hashed"}
            return len(found["leftovers"]), done["reclaimed_objects"], segment.names(""), alive

    found, reclaimed, left, alive = in_own_shm(work)
    assert (found, reclaimed) == (3, 12)
    assert left == alive


def test_looking_at_other_domains_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(segment, "ROOT", tmp_path)
    for number in range(40):
        (tmp_path / object_names.registry(f"d{number}", 1)).touch()
    monkeypatch.setattr(stale_cleanup, "OTHERS_MAX", 16)
    monkeypatch.setattr(stale_cleanup, "OTHERS_S", 60.0)
    assert [len(stale_cleanup.sweep_others("mine")) for _ in range(4)] == [16, 16, 8, 0]
    for number in range(40):
        (tmp_path / object_names.registry(f"d{number}", 1)).touch()
    monkeypatch.setattr(stale_cleanup, "OTHERS_S", 0.0)
    assert len(stale_cleanup.sweep_others("mine")) == 1
