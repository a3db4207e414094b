"""`ipcbus config`: checks a config file, and shows the options in force and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ipcbus.config import SCOPES, Config
from ipcbus_tools.common import config_option, json_option, output, print_json, safe
from ipcbus_tools.completion import candidates
from ipcbus_tools.render.text_tables import show_table

if TYPE_CHECKING:
    from ipcbus_tools.render.text_tables import Row

_DEFAULT = "default"


@click.group("config")
def command() -> None:
    """Checks a config file, and shows which options are in force.

    \b
    Examples:
      ipcbus config check bus.toml
      ipcbus config show --config bus.toml --changed
      ipcbus config show --scope source --topic quotes.AAPL
    """


@command.command("check", short_help="Says what is wrong with a config file.")
@click.argument("file", shell_complete=candidates.files)
@json_option
def check(file: str, as_json: bool) -> None:
    """Checks FILE, TOML or Ultra Messaging's flat form, as a context does; exit code 2 when FILE is invalid."""
    config = Config.from_file(file)
    counts = {scope: len(section) for scope, section in config.sections.items() if section}
    if as_json:
        print_json(
            {
                "file": file,
                "options": counts,
                "topics": [each.label for each in config.topics],
                "without_effect": [
                    {"scope": each.scope, "name": each.name, "value": each.value, "line": each.line}
                    for each in config.ignored
                ],
            }
        )
        return
    console = output()
    found = ", ".join(f"{number} of scope {scope}" for scope, number in counts.items())
    console.print(safe(f"{file}: valid; options: {found or 'none'}"))
    for override in config.topics:
        parts = ", ".join(f"{len(section)} of scope {scope}" for scope, section in override.sections.items() if section)
        console.print(safe(f"  {override.label}: {parts or 'no options'}"))
    for ignored in config.ignored:
        console.print(
            safe(
                f"  line {ignored.line}: {ignored.scope} {ignored.name}: known to Ultra Messaging, without effect here"
            )
        )


@command.command("show", short_help="Lists options: value, default, and where the value comes from.")
@config_option
@click.option(
    "--scope", metavar="SCOPE", type=click.Choice(list(SCOPES)), help=f"Only this scope: {', '.join(SCOPES)}."
)
@click.option(
    "--topic",
    metavar="NAME",
    default="",
    show_default=False,
    shell_complete=candidates.topics,
    help="Show the options of this topic, with the file's sections for topics that match it.",
)
@click.option("--changed", is_flag=True, help="Show only options whose value differs from the default.")
@json_option
def show(config: str | None, scope: str | None, topic: str, changed: bool, as_json: bool) -> None:
    """Shows the options in force: those of --config, else of the file that IPCBUS_CONFIG names, else the defaults."""
    loaded = Config.load(config)
    rows = [row for each in ([scope] if scope else SCOPES) for row in _rows(loaded, each, topic)]
    if changed:
        rows = [row for row in rows if row["value"] != row["default"]]
    if as_json:
        print_json(rows)
        return
    if not rows:
        output().print("every option has its default", highlight=False)
    show_table(output(), "options", [{name: _shown(value) for name, value in row.items()} for row in rows])


def _rows(config: Config, scope: str, topic: str) -> list[Row]:
    values, origins = config.values(scope, topic), config.origins(scope, topic)
    return [
        {
            "scope": scope,
            "option": name,
            "value": values[name],
            "unit": row.unit,
            "default": row.default,
            "from": origins.get(name, _DEFAULT),
        }
        for name, row in SCOPES[scope].rows.items()
    ]


def _shown(value: object) -> str:
    """Returns a value as TOML writes it, but texts without quotes."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
