"""Completions of arguments and options at the Tab key: names of the bus, read without importing numpy.

Each function is the `shell_complete` of arguments and options. A name that is not printable is left out.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import ipcbus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import click
    from click.shell_completion import CompletionItem

    from ipcbus.resolution.local.quick_names import QuickNames

_TOPICS_SHOWN = 3


def topics(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Returns the topics that contexts of the domain send or receive."""
    return _offer(_topics(context), incomplete)


def sessions(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Returns the source strings of the domain's sessions, and their topics, which name a session too."""
    found = {}
    for context_names in _contexts(_domain(context)):
        for source, topic_names in context_names.sessions.items():
            more = f" and {len(topic_names) - _TOPICS_SHOWN} more" if len(topic_names) > _TOPICS_SHOWN else ""
            found[source] = ", ".join(sorted(topic_names)[:_TOPICS_SHOWN]) + more
    return _offer(found | _topics(context, received=False), incomplete)


def domains(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Returns the domains that have a live context."""
    found: dict[str, int] = {}
    for context_names in _contexts():
        found[context_names.domain] = found.get(context_names.domain, 0) + 1
    return _offer(
        {domain: f"{count} context{'' if count == 1 else 's'}" for domain, count in found.items()}, incomplete
    )


def transports(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Returns the values of the option `transport`."""
    from ipcbus.config import SCOPES

    return _offer(dict.fromkeys(SCOPES["source"].rows["transport"].choices or (), ""), incomplete)


def files(
    _context: click.Context, _parameter: click.Parameter, incomplete: str, kind: str = "file"
) -> list[CompletionItem]:
    """Tells the shell to complete files and directories."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type=kind)]


directories = functools.partial(files, kind="dir")
"""Tells the shell to complete directories."""


def _topics(context: click.Context, *, received: bool = True) -> dict[str, str]:
    found: dict[str, str] = {}
    for context_names in _contexts(_domain(context)):
        if received:
            for topic in context_names.received:
                found.setdefault(topic, "no source")
        for source, topic_names in context_names.sessions.items():
            found |= dict.fromkeys(topic_names, source)
    return found


def _contexts(domain: str | None = None) -> Iterator[QuickNames]:
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
