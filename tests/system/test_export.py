"""`ipcbus export` over real HTTP."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strictly
from prometheus_client.parser import text_string_to_metric_families

import ipcbus
from ipcbus_tools.cli import cli
from ipcbus_tools.commands import export_command
from ipcbus_tools.metrics import metrics_server
from tests.kit.bus import GIVE_UP_S
from tests.kit.waiting import until
from tests.system.test_cli_processes import SIGNALS, started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from wsgiref.types import StartResponse, WSGIEnvironment

    from ipcbus import Context
    from tests.kit.peers import Peers
    from tests.system.test_cli_processes import Process


@contextmanager
def exporting(*arguments: str) -> Iterator[tuple[Process, int]]:
    """An exporter on a free port of loopback."""
    with started("export", "--port", "0", "--json", *arguments) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read() if process.stderr else ""
        url = json.loads(line)["url"]
        assert url.startswith("http://127.0.0.1:")
        yield process, int(url.removesuffix("/metrics").rpartition(":")[2])


def ask(port: int, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GIVE_UP_S)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def scrape(port: int) -> dict[str, dict[str, float]]:
    """The samples of each metric, by source or domain."""
    status, body, _ = ask(port)
    assert status == 200
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            labels = sample.labels
            found.setdefault(sample.name, {})[labels.get("source") or labels.get("domain") or ""] = sample.value
    return found


@pytest.fixture
def context(domain: str) -> Iterator[Context]:
    with ipcbus.Context(domain=domain, name='a "b"\n') as found:
        yield found


def test_scrapes_say_what_is_sent(domain: str, context: Context) -> None:
    source = context.source("t\\")
    with exporting("--domain", domain) as (_, port):
        for number in range(1, 4):
            source.send(b"1234", flush=True)
            found = scrape(port)
            assert found["ipcbus_session_lbm_msgs_sent_total"] == {source.source: number}
            assert found["ipcbus_source_sent_bytes_total"] == {source.source: 4 * number}
            assert found["ipcbus_domain_contexts"] == {domain: 1}
        assert source.receivers == 0
        source.close()
        assert "ipcbus_session_alive" not in scrape(port)


def test_both_formats_and_compression(domain: str, context: Context) -> None:
    context.receiver("t", lambda message: None)
    source = context.source("t")
    source.wait_for_receivers(1, GIVE_UP_S)
    source.send(b"x", flush=True)
    with exporting("--domain", domain) as (_, port):
        _, plain, headers = ask(port)
        assert headers["content-type"].startswith("text/plain; version=")
        assert b"\n# TYPE ipcbus_slot_latency_seconds histogram\n" in plain
        _, strict, headers = ask(port, Accept="application/openmetrics-text; version=1.0.0")
        assert headers["content-type"].startswith("application/openmetrics-text")
        names = [family.name for family in strictly(strict.decode())]  # type: ignore[no-untyped-call]
        assert {"ipcbus_build", "ipcbus_slot_latency_seconds", "ipcbus_session_msgs_sent"} <= set(names)
        _, packed, headers = ask(port, **{"Accept-Encoding": "gzip"})
        assert headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed).count(b"\n") == plain.count(b"\n")


def test_only_get_of_the_metrics(domain: str) -> None:
    with exporting("--domain", domain) as (_, port):
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            status, body, headers = ask(port, method=method)
            assert (status, body, headers["allow"]) == (405, b"", "GET, HEAD")
        for path, expected in (("/metrics", 200), ("/", 200), ("/none", 404)):
            _, body, asked = ask(port, path)
            status, nothing, headers = ask(port, path, method="HEAD")
            assert (status, nothing, headers["content-type"]) == (expected, b"", asked["content-type"])
            assert path == "/metrics" or int(headers["content-length"]) == len(body)
        status, body, _ = ask(port, "/etc/passwd")
        assert (status, body) == (404, b"there is only /metrics\n")
        status, body, _ = ask(port, "/")
        assert status == 200
        assert b"href='/metrics'" in body


def test_scrapes_at_once(domain: str, context: Context) -> None:
    source = context.source("t")
    source.send(b"x", flush=True)
    with exporting("--domain", domain) as (_, port), ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: scrape(port), range(24)))
    # Messages, as datagrams also count what an idle source says about its topics while the exporter starts.
    assert all(each["ipcbus_session_lbm_msgs_sent_total"] == {source.source: 1} for each in found)


def test_a_client_that_says_nothing_or_nonsense_keeps_nobody(domain: str) -> None:
    with exporting("--domain", domain) as (process, port):
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as rude:
            rude.sendall(b"\x00\xff nonsense\r\n\r\n")
            assert scrape(port)["ipcbus_domain_contexts"] == {domain: 0}
            rude.shutdown(socket.SHUT_RDWR)
        scrape(port)
        process.send_signal(signal.SIGTERM)
        assert process.communicate() == ("", "")


@contextmanager
def serving(domain: str) -> Iterator[metrics_server.MetricsServer]:
    """A server in this process."""
    with metrics_server.MetricsServer(metrics_server.registry([domain]), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_a_silent_client_is_hung_up_on(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "DEADLINE_S", 0.05)
    with serving(domain) as server, socket.create_connection(("127.0.0.1", server.server_port), GIVE_UP_S) as silent:
        assert silent.recv(1) == b""


def test_a_client_that_drips_is_hung_up_on(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "DEADLINE_S", 0.3)
    with serving(domain) as server, socket.create_connection(("127.0.0.1", server.server_port), 0.05) as slow:
        slow.sendall(b"GET /")
        with pytest.raises(ConnectionError):
            while True:
                with contextlib.suppress(TimeoutError):
                    if slow.recv(1000) == b"":
                        raise ConnectionResetError
                slow.sendall(b"x")


def test_so_many_connections_at_once(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, gate, most, lock = 0, threading.Event(), 0, threading.Lock()

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        nonlocal entered, most
        del environ
        with lock:
            entered += 1
            most = max(most, entered)
        assert gate.wait(GIVE_UP_S)
        with lock:
            entered -= 1
        start_response("200 OK", [])
        return [b"done"]

    class Places(threading.BoundedSemaphore):
        def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
            if not super().acquire(blocking=False):
                gate.set()  # all that may come have come
                super().acquire(blocking, timeout)
            return True

    clients = 2 * metrics_server.CONNECTIONS
    monkeypatch.setattr(threading, "BoundedSemaphore", Places)
    with serving(domain) as server, ThreadPoolExecutor(clients) as pool:
        server.set_app(answer)
        found = list(pool.map(lambda _: ask(server.server_port)[:2], range(clients)))
    assert found == [(200, b"done")] * clients
    assert most <= metrics_server.CONNECTIONS


def test_a_killed_party_is_seen_and_then_gone(domain: str, context: Context, peers: Peers) -> None:
    (sender,) = peers.several(1)
    source = sender.do("source", topic="t")
    context.receiver("t", lambda message: None)
    with exporting("--domain", domain) as (_, port):
        assert scrape(port)["ipcbus_session_alive"] == {source: 1}
        sender.kill()
        until(lambda: "ipcbus_session_alive" not in scrape(port), "the end of the dead session")


def test_all_domains(domain: str, context: Context) -> None:
    with exporting("--all") as (_, port):
        assert scrape(port)["ipcbus_domain_contexts"][domain] == 1


def test_several_domains(domain: str) -> None:
    with exporting("--domain", domain, "--domain", f"{domain}x") as (_, port):
        assert scrape(port)["ipcbus_domain_contexts"] == {domain: 0, f"{domain}x": 0}


@SIGNALS
def test_signal_ends_it(domain: str, number: int, code: int) -> None:
    with exporting("--domain", domain) as (process, _):
        process.send_signal(number)
        assert process.communicate() == ("", "")
        assert process.returncode == code


def test_it_says_where_it_listens(domain: str) -> None:
    with started("export", "--port", "0", "--domain", domain) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("serving http://127.0.0.1:")
        assert line.endswith("/metrics; Ctrl-C ends it\n")


# ---------------------------------------------------------------------- once, and wrong use


def test_once(domain: str, context: Context) -> None:
    context.source("t\x1b[2J")
    result = CliRunner().invoke(cli, ["export", "--once", "--domain", domain])
    assert result.exit_code == 0, result.output
    assert 'topic="t\\\\x1b[2J"' in result.stdout
    assert 'context_name="a \\"b\\"' in result.stdout
    assert len(list(text_string_to_metric_families(result.stdout))) > 20


def test_a_port_that_is_taken_is_named(domain: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(cli, ["export", "--port", str(port), "--domain", domain])
    assert result.exit_code == 1
    assert result.stderr.startswith(
        f"error: cannot listen on 127.0.0.1 port {port}: Address already in use; choose others with"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--all", "--domain", "d"], "--all and --domain contradict each other"),
        (["--once", "--json"], "ipcbus list --json"),
        (["--address", "no.such.host.invalid"], "--address no.such.host.invalid: "),
        (["--config", "/does/not/exist.toml"], "cannot be read"),
    ],
)
def test_wrong_use(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(cli, ["export", *arguments])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert text in result.stderr


def test_without_the_extra_it_names_what_to_install(domain: str) -> None:
    program = "import sys; sys.modules['prometheus_client'] = None; from ipcbus_tools.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "export", "--domain", domain], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert (
        done.stderr == "error: ipcbus export needs prometheus-client; in a clone of ipcbus: pip install '.[metrics]'\n"
    )


def test_help_needs_no_extra() -> None:
    program = "import sys; sys.modules['prometheus_client'] = None; from ipcbus_tools.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True)
    assert "\n  export " in done.stdout


def test_the_port_is_none_of_prometheus() -> None:
    assert not 9100 <= export_command.PORT <= 9999
