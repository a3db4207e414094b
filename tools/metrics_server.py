"""The HTTP side of `ipcbus export`: GET /metrics, and nothing else."""

from __future__ import annotations

import socket
import socketserver
import sys
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app

from ipcbus_tools.metrics import DomainCollector

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

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
        if environ["REQUEST_METHOD"] != "GET":
            start_response("405 Method Not Allowed", [("Allow", "GET"), ("Content-Length", "0")])
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


def _say(start_response: StartResponse, status: str, line: str) -> list[bytes]:
    start_response(status, [("Content-Type", _PLAIN)])
    return [line.encode()]


class _Handler(WSGIRequestHandler):
    """One connection. A client that says nothing is not waited for without end."""

    timeout = 10

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a line for each scrape tells nobody anything."""
        del format, args


class MetricsServer(socketserver.ThreadingMixIn, WSGIServer):
    """Listens, with a thread for each connection."""

    daemon_threads = True

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        """Listens already.

        Raises:
            OSError: the host is unknown, or the port is taken or not allowed.
        """
        self.address_family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        super().__init__(address[:2], _Handler)  # type: ignore[arg-type]  # of IPv6 too, the host comes first
        self.set_app(application(registry))

    def server_bind(self) -> None:
        """Binds without asking the name service who this host is, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}{_PATH}"

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in socketserver
        """A client that went away, or said nothing, is no news."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
