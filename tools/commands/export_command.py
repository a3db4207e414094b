"""`ipcbus export`: serves the statistics of the bus to Prometheus."""

from __future__ import annotations

import os
import socket
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import click

from ipcbus.extras import how_to_install
from ipcbus_tools.common import (
    Failure,
    Misuse,
    config_check_option,
    domain_option,
    json_option,
    notes,
    port_option,
    print_json,
)
from ipcbus_tools.signals import SignalHandler

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ipcbus_tools.metrics.metrics_server import MetricsServer

PORT: Final = 19465
"""A port outside of 9100 to 9999, where the list of Prometheus exporters has no free port."""


@click.command("export")
@click.option("--address", metavar="HOST", default="127.0.0.1", help="Listen on this address.")
@port_option(PORT, "TCP")
@click.option("--once", is_flag=True, help="Print once what Prometheus would get, and end.")
@domain_option("Export this domain; may be repeated (default: the domain 'default').", multiple=True)
@click.option("--all", "everywhere", is_flag=True, help="Export all domains of this host, also later ones.")
@config_check_option
@json_option
def command(
    address: str,
    port: int,
    once: bool,
    domain: tuple[str, ...],
    everywhere: bool,
    as_json: bool,
) -> None:
    """Serves http://HOST:N/metrics to Prometheus; a scrape only reads shared memory.

    A client that reaches the port sees the names of topics, contexts and users, but no message and no command line. The
    command needs the extra 'metrics': in a clone of ipcbus, pip install '.[metrics]'. Scraping, dashboard and alerts
    are in docs/how-to/observe.md.

    \b
    Examples:
      ipcbus export
      ipcbus export --domain trading --domain risk --port 9000
      ipcbus export --all --address 0.0.0.0
      ipcbus export --once | grep lost_total

    With --json the command prints its address as JSON as soon as it answers there.
    """
    if everywhere and domain:
        raise Misuse("--all and --domain contradict each other; leave one out")
    if once and as_json:
        raise Misuse("--once prints the text format of Prometheus; for JSON use ipcbus list --json")
    if find_spec("prometheus_client") is None:
        raise Failure(f"ipcbus export needs prometheus-client; {how_to_install('metrics')}")
    from ipcbus_tools.metrics import metrics_server  # it imports prometheus_client

    shown = () if everywhere else domain or ("default",)
    registry = metrics_server.registry(shown)
    if once:
        click.echo(metrics_server.text(registry), nl=False)
        return
    with SignalHandler() as signals, _listening(registry, address, port) as server:
        _say(server, shown, as_json)
        with signals.interruptible():
            server.serve_forever()


def _listening(registry: CollectorRegistry, address: str, port: int) -> MetricsServer:
    from ipcbus_tools.metrics.metrics_server import MetricsServer

    try:
        return MetricsServer(registry, address, port)
    except socket.gaierror as error:
        raise Misuse(f"--address {address}: {error.strerror}; name an address of this host") from error
    except UnicodeError as error:
        raise Misuse(f"--address {address!r} is not the name of a host; name an address of this host") from error
    except OSError as error:
        raise Failure(
            f"cannot listen on {address} port {port}: {os.strerror(error.errno or 0)}; "
            "choose others with --address and --port"
        ) from error


def _say(server: MetricsServer, domains: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        print_json({"url": server.url, "domains": list(domains)})
    else:
        from rich.text import Text

        notes().print(Text(f"serving {server.url}; Ctrl-C ends it"))
