"""The generated pages errors.md, cli.md and layouts.md in docs/reference: each error, command and shared structure.

In a checkout, `python -m ipcbus_tools.reference_pages` writes them; with `--check` it only compares.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import ipcbus
from ipcbus import errors
from ipcbus.wire import wire_layout
from ipcbus_tools.cli import COMMANDS, cli
from ringbuf import codegen, item_layout, layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    import numpy as np

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"


def error_page() -> str:
    """Returns the page of errors, from their docstrings."""
    tree = (errors.__doc__ or "").partition("\n\n")[2]
    parts = [_heading_and_text(name) for name in vars(errors) if _is_error(name)]
    return "\n".join(["# Errors", "", *_tree(tree), "", *parts])


def _tree(text: str) -> list[str]:
    """Returns the tree of classes as a block, and the sentences after it."""
    drawn = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    said = [line for line in text.splitlines() if not line.startswith("    ")]
    return ["```text", *drawn, "```", "", _markdown("\n".join(said).strip())]


def _is_error(name: str) -> bool:
    kind = getattr(errors, name)
    return isinstance(kind, type) and issubclass(kind, ipcbus.IpcBusError)


def _heading_and_text(name: str) -> str:
    return f"## {name}\n\n{_markdown(inspect.getdoc(getattr(errors, name)) or '')}\n"


def _markdown(text: str) -> str:
    return text.replace("``", "`")


def command_page() -> str:
    """Returns the page of commands, from their help."""
    head = (
        "# Commands\n\n"
        "`ipcbus COMMAND --help` shows each part of this page in the terminal. Exit codes: 0 done; 1 the bus or the\n"
        "host refused, or nothing came in time; 2 wrong use; 130 ended by Ctrl-C; 143 ended by SIGTERM.\n"
    )
    context = click.Context(cli, info_name="ipcbus")
    parts = [part for name, line in COMMANDS.items() if line for part in _command(context, name)]
    return "\n".join([head, *parts])


def _command(parent: click.Context, name: str) -> Iterator[str]:
    group = parent.command
    command = group.get_command(parent, name) if isinstance(group, click.Group) else None
    if command is None or command.hidden:
        return
    context = click.Context(command, info_name=name, parent=parent)
    path = context.command_path
    words = [part for parameter in command.params for part in _usage(parameter)]
    yield f"## {path}\n\n    {' '.join([path, '[OPTIONS]', *words])}\n\n{_help(command)}\n"
    shown = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    rows = [f"| {_names(each)} | {_meaning(each)} |" for each in shown]
    if rows:
        yield "\n".join(["| option | meaning |", "|---|---|", *rows, ""])
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            yield from _command(context, each)


def _usage(parameter: click.Parameter) -> list[str]:
    if not isinstance(parameter, click.Argument):
        return []
    if parameter.metavar:
        return [parameter.metavar]
    name = (parameter.name or "").upper()
    name = name if parameter.required else f"[{name}]"
    return [name + ("..." if parameter.nargs == -1 else "")]


def _names(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    takes = "" if option.is_flag or option.count else f" `{option.metavar or option.type.name.upper()}`"
    return names + takes


def _meaning(option: click.Option) -> str:
    meaning = re.sub(r"\s+", " ", option.help or "").replace("|", "\\|").strip()
    is_shown = isinstance(option.default, int | float | str) and not option.is_flag and "[default" not in meaning
    return f"{meaning} [default: {option.default}]" if is_shown and option.default != "" else meaning


def _help(command: click.Command) -> str:
    """Returns the help; paragraphs whose line breaks count become blocks."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    blocks = []
    for paragraph in paragraphs:
        kept = paragraph.removeprefix("\b\n")
        blocks.append(paragraph if kept == paragraph else f"```text\n{kept}\n```")
    return "\n\n".join(blocks)


LAYOUTS: Final = {
    "Rings, control blocks and pipes": layout,
    "Messages, topics and registries": wire_layout,
    "Queues of objects": item_layout,
}
"""The modules that describe what processes share in memory, by the title of their part of the page."""


def layout_page() -> str:
    """Returns the page of what processes share in memory, from the modules that the compiled code is generated from."""
    head = (
        "# Layouts of shared memory\n\n"
        "Each byte that two processes share in memory is described once. This page and the C structures of the\n"
        "compiled code are generated from the description. Numbers are little-endian, offsets and sizes are bytes.\n"
        "Processes whose layouts differ refuse each other ([how to upgrade](../how-to/upgrade.md)). Files have pages\n"
        "of their own: [archives](archive-format.md), [areas of guaranteed messages](gmd-journal.md).\n"
    )
    return "\n".join([head, *(part for title, module in LAYOUTS.items() for part in _layout(title, module))])


def _layout(title: str, module: ModuleType) -> Iterator[str]:
    text = (module.__doc__ or "").partition("\n\n")[2].partition("\nRun `python -m")[0]
    text = text.replace("::\n", ":\n").strip()
    yield f"## {title}\n\n{_markdown(text)}\n"
    for name, dtype in module.STRUCTS.items():
        yield "\n".join(
            [
                f"### {name}, {dtype.itemsize} bytes",
                "",
                "| offset | field | type |",
                "|---|---|---|",
                *_fields(dtype),
                "",
            ]
        )
    yield "\n".join(
        [
            "### Constants",
            "",
            "| name | value |",
            "|---|---|",
            *(f"| `{n}` | {v} |" for n, v in module.CONSTANTS.items()),
            "",
        ]
    )


def _fields(dtype: np.dtype[np.void]) -> Iterator[str]:
    fields: Mapping[str, tuple[Any, ...]] = dtype.fields or {}
    for name, (kind, offset, *_) in sorted(fields.items(), key=lambda each: each[1][1]):
        base, shape = kind.base, kind.shape
        of = f"{base.itemsize} bytes of text" if base.kind == "S" else f"{base.name}"
        yield f"| {offset} | `{name}` | {of}{''.join(f', {length} times' for length in shape)} |"


def main() -> None:
    """Writes the pages, or with `--check` only compares them.

    Raises:
        SystemExit: with `--check`, when a page differs.
    """
    texts = {
        FOLDER / "errors.md": error_page(),
        FOLDER / "cli.md": command_page(),
        FOLDER / "layouts.md": layout_page(),
    }
    codegen.main("the errors, commands and layouts", texts, cure="make docs")


if __name__ == "__main__":
    main()
