"""What an argument may go on with when somebody presses Tab: names of the bus, read without loading numpy.

Each function is the `shell_complete` of arguments and options. A name that cannot be shown is not offered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipcbus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import click
    from click.shell_completion import CompletionItem

    from ipcbus.resolution.local.quick_names import QuickNames

_TOPICS_SHOWN = 3


def topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Topics that somebody sends or receives in the domain."""
    return _offer(_topics(context), incomplete)


def sessions(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Source strings of the sessions in the domain, and topics, which name a session too."""
    found = {}
    for glance in _look(_domain(context)):
        for source, carried in glance.sessions.items():
            more = f" and {len(carried) - _TOPICS_SHOWN} more" if len(carried) > _TOPICS_SHOWN else ""
            found[source] = ", ".join(sorted(carried)[:_TOPICS_SHOWN]) + more
    return _offer(found | _topics(context, received=False), incomplete)


def domains(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Domains in which a context lives."""
    found: dict[str, int] = {}
    for glance in _look():
        found[glance.domain] = found.get(glance.domain, 0) + 1
    return _offer(
        {domain: f"{count} context{'' if count == 1 else 's'}" for domain, count in found.items()}, incomplete
    )


def transports(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Values of the option `transport`."""
    from ipcbus.config import SCOPES

    return _offer(dict.fromkeys(SCOPES["source"].rows["transport"].choices or (), ""), incomplete)


def files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files and directories; the shell knows them."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def directories(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Directories; the shell knows them."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def _topics(context: click.Context, *, received: bool = True) -> dict[str, str]:
    found: dict[str, str] = {}
    for glance in _look(_domain(context)):
        if received:
            for topic in glance.received:
                found.setdefault(topic, "no source")
        for source, carried in glance.sessions.items():
            found |= dict.fromkeys(carried, source)
    return found


def _look(domain: str | None = None) -> Iterator[QuickNames]:
    from ipcbus.resolution.local.quick_names import look

    return look(ipcbus.__version__, domain)


def _domain(context: click.Context) -> str:
    return str(context.params.get("domain") or "default")


def _offer(found: Mapping[str, str], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [
        CompletionItem(name, help=found[name] if found[name].isprintable() else "")
        for name in sorted(found)
        if name.startswith(incomplete) and name.isprintable()
    ]
