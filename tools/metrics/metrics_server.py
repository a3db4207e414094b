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
"""Most connections at a time, so that clients cannot use up the host's threads and descriptors."""

DEADLINE_S = 10.0
"""Most seconds of a connection."""

_PATH = "/metrics"
_PAGE = b"<!doctype html><title>ipcbus</title><h1>ipcbus export</h1><p><a href='/metrics'>metrics</a></p>\n"
_PLAIN = "text/plain; charset=utf-8"


def registry(domains: Iterable[str]) -> CollectorRegistry:
    """Returns the registry of these domains, or of all domains if there is no name."""
    found = CollectorRegistry(auto_describe=False)
    found.register(DomainCollector(domains))
    return found


def text(registry: CollectorRegistry) -> str:
    """Returns the metrics of this moment in the text format of Prometheus."""
    return generate_latest(registry).decode()


def application(registry: CollectorRegistry) -> WSGIApplication:
    """Returns the WSGI application that answers requests."""
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
                return _plain(start_response, "503 Service Unavailable", f"shared memory cannot be read: {error}\n")
        if path == "/":
            start_response("200 OK", [("Content-Type", "text/html; charset=utf-8")])
            return [_PAGE]
        return _plain(start_response, "404 Not Found", f"there is only {_PATH}\n")

    return answer


def _head(answer: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answers as GET does, but without the body."""
    response: list[Any] = []
    body = b"".join(answer({**environ, "REQUEST_METHOD": "GET"}, lambda *line: response.append(line)))  # type: ignore[arg-type]
    status, headers = response[0][:2]
    start_response(status, [*headers, ("Content-Length", str(len(body)))])
    return []


def _plain(start_response: StartResponse, status: str, line: str) -> list[bytes]:
    start_response(status, [("Content-Type", _PLAIN)])
    return [line.encode()]


class _Handler(WSGIRequestHandler):
    """One connection; its deadline also ends a client that sends or reads only a byte now and then."""

    def setup(self) -> None:
        """Starts the deadline of the connection."""
        super().setup()
        self._deadline = threading.Timer(DEADLINE_S, self._hang_up)
        self._deadline.daemon = True
        self._deadline.start()

    def finish(self) -> None:
        """Cancels the deadline."""
        self._deadline.cancel()
        super().finish()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: a line for each scrape has no use."""
        del format, args


class MetricsServer(socketserver.ThreadingMixIn, WSGIServer):
    """Serves each connection in a thread of its own, `CONNECTIONS` at a time; further ones wait in the system."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Begins to listen.

        Raises:
            OSError: the host is unknown, or the port is in use or not allowed.
        """
        self.address_family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(address[:2], _Handler)  # type: ignore[arg-type]  # the host comes first also for IPv6
        self.set_app(application(registry))

    def server_bind(self) -> None:
        """Binds without asking the name service for the name of this host, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Returns the next connection, when a thread is free for it.

        Raises:
            OSError: the client has gone.
        """
        self._free.acquire()
        try:
            return super().get_request()
        except BaseException:
            self._free.release()
            raise

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as in socketserver
        """Ends a connection and frees its thread."""
        try:
            super().shutdown_request(request)
        finally:
            # A signal while a thread starts ends its connection twice: in the main thread and in that thread.
            with contextlib.suppress(ValueError):
                self._free.release()

    @property
    def url(self) -> str:
        """The URL of the metrics."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}{_PATH}"

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in socketserver
        """Passes over clients that went away or sent nothing."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
