"""The HTTP side of `ipcbus export`: GET and HEAD of /metrics, and nothing else."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import sys
import threading
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app

from ipcbus_tools.metrics.prometheus_metrics import DomainCollector

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

CONNECTIONS = 16
"""So many at once: nobody who opens more takes threads and descriptors from the host."""

DEADLINE_S = 10.0
"""A connection ends so long after it began."""

_PATH = "/metrics"
_PAGE = b"<!doctype html><title>ipcbus</title><h1>ipcbus export</h1><p><a href='/metrics'>metrics</a></p>\n"
_PLAIN = "text/plain; charset=utf-8"


def registry(domains: Iterable[str]) -> CollectorRegistry:
    """What is exported of these domains; of all where none is named."""
    found = CollectorRegistry(auto_describe=False)
    found.register(DomainCollector(domains))
    return found


def text(registry: CollectorRegistry) -> str:
    """What Prometheus would get now."""
    return generate_latest(registry).decode()


def application(registry: CollectorRegistry) -> WSGIApplication:
    """Answers requests."""
    metrics: WSGIApplication = make_wsgi_app(registry)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if environ["REQUEST_METHOD"] == "HEAD":
            return _head(answer, environ, start_response)
        if environ["REQUEST_METHOD"] != "GET":
            start_response("405 Method Not Allowed", [("Allow", "GET, HEAD"), ("Content-Length", "0")])
            return []
        if path == _PATH:
            try:
                return metrics(environ, start_response)
            except OSError as error:
                return _say(start_response, "503 Service Unavailable", f"shared memory cannot be read: {error}\n")
        if path == "/":
            start_response("200 OK", [("Content-Type", "text/html; charset=utf-8")])
            return [_PAGE]
        return _say(start_response, "404 Not Found", f"there is only {_PATH}\n")

    return answer


def _head(answer: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """What GET would get, but for the body."""
    said: list[Any] = []
    body = b"".join(answer({**environ, "REQUEST_METHOD": "GET"}, lambda *line: said.append(line)))  # type: ignore[arg-type]
    status, headers = said[0][:2]
    start_response(status, [*headers, ("Content-Length", str(len(body)))])
    return []


def _say(start_response: StartResponse, status: str, line: str) -> list[bytes]:
    start_response(status, [("Content-Type", _PLAIN)])
    return [line.encode()]


class _Handler(WSGIRequestHandler):
    """One connection, with a deadline for all of it: a client that says or takes a byte now and then has no more."""

    def setup(self) -> None:
        """Sets the deadline."""
        super().setup()
        self._deadline = threading.Timer(DEADLINE_S, self._hang_up)
        self._deadline.daemon = True
        self._deadline.start()

    def finish(self) -> None:
        """It was met, or is over."""
        self._deadline.cancel()
        super().finish()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a line for each scrape tells nobody anything."""
        del format, args


class MetricsServer(socketserver.ThreadingMixIn, WSGIServer):
    """Listens, with a thread for each of so many connections; more of them wait until the system hands them over."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Listens already.

        Raises:
            OSError: the host is unknown, or the port is taken or not allowed.
        """
        self.address_family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(address[:2], _Handler)  # type: ignore[arg-type]  # of IPv6 too, the host comes first
        self.set_app(application(registry))

    def server_bind(self) -> None:
        """Binds without asking the name service who this host is, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Returns the next connection, when there is room for it.

        Raises:
            OSError: it has gone.
        """
        self._free.acquire()
        try:
            return super().get_request()
        except BaseException:
            self._free.release()
            raise

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as in socketserver
        """Ends a connection, however it went."""
        try:
            super().shutdown_request(request)
        finally:
            self._free.release()

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}{_PATH}"

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in socketserver
        """A client that went away, or said nothing, is no news."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
