"""Every example in docs/ runs: a page's config files are loaded, its Python runs in the order of the page.

A tutorial has programs, written under the names in their first lines, and console sessions that run them.
"""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

import ipcbus
from ipcbus.config import Config
from ipcbus_tools.cli import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {str(path.relative_to(DOCS)): path.read_text() for path in sorted(DOCS.rglob("*.md"))}
# Those that need a JVM: tests/spark runs them.
OF_SPARK = [name for name, text in PAGES.items() if "from ipcbus.spark" in text]
WITH_EXAMPLES = [
    name
    for name, text in PAGES.items()
    if re.search(r"^```(python|toml|cfg)$", text, re.MULTILINE) and name not in OF_SPARK and "tutorial/" not in name
]
# Spark and a second host have tests of their own.
ELSEWHERE = ("tutorial/traffic-report.md", "tutorial/two-hosts.md")
TUTORIALS = [name for name in PAGES if name.startswith("tutorial/") and name not in ELSEWHERE]

CONFIGURE = "how-to/configure.md"


def blocks(page: str, *languages: str) -> Iterator[str]:
    """The examples of a page in these languages."""
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL):
        if language in languages:
            yield text


def write_files(page: str) -> list[Path]:
    """The config files of a page, under the names that their first lines tell."""
    written = []
    for text in blocks(page, "toml", "cfg"):
        name = re.match(r"# ([\w.-]+)\n", text)
        assert name, f"{page}: the first line of an example of a config file is '# NAME'"
        written.append(Path(name[1]))
        written[-1].write_text(text)
    return written


@pytest.fixture(autouse=True)
def place(tmp_path: Path, domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples name neither directory nor domain."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(inspect.unwrap(ipcbus.Context.__init__).__kwdefaults__, "domain", domain)


@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_examples_run(page: str) -> None:
    for path in write_files(page):
        Config.load(path)
    names: dict[str, object] = {}
    for number, text in enumerate(blocks(page, "python"), 1):
        exec(compile(text, f"{page}, example {number}", "exec"), names)


def write_programs(page: str, domain: str) -> None:
    """Writes the programs of a tutorial, each under the name in its first line."""
    for text in blocks(page, "python"):
        name = re.match(r"# ([\w.-]+)\n", text)
        assert name, f"{page}: the first line of a program is '# NAME'"
        Path(name[1]).write_text(text.replace("ipcbus.Context()", f"ipcbus.Context(domain={domain!r})"))


def shell(domain: str) -> str:
    """What `python` and `ipcbus` are in the sessions of a page."""
    return f"""
        python() {{ {sys.executable} "$@"; }}
        ipcbus() {{
            case $1 in archive | pipeline | resolver) ;; *) set -- "$@" --domain {domain} ;; esac
            {sys.executable} -m ipcbus_tools "$@"
        }}
    """


def run_sessions(page: str, domain: str) -> None:
    """Runs what a tutorial types, and compares what it prints; `...` in the page stands for any text."""
    for session in blocks(page, "console"):
        lines = session.splitlines()
        typed = [line[2:] for line in lines if line.startswith("$ ")]
        shown = "".join(f"{line}\n" for line in lines if not line.startswith("$ "))
        script = "\n".join([shell(domain), *typed])
        ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        assert re.fullmatch(re.escape(shown).replace(r"\.\.\.", ".*"), ran.stdout), f"{ran.stdout}\n{ran.stderr}"


@pytest.mark.timeout(300)  # a dozen interpreters start
@pytest.mark.parametrize("page", TUTORIALS)
def test_tutorials_print_what_they_show(page: str, domain: str) -> None:
    write_programs(page, domain)
    run_sessions(page, domain)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", PAGES[page]):
        assert (DOCS / page).parent.joinpath(target).exists(), f"{page} points at {target}"


def commands(page: str) -> Iterator[list[str]]:
    """The calls of `ipcbus` that a page shows, in its text and in lines of their own, each up to a pipe."""
    of_text = re.findall(r"(?<!`)`ipcbus ([^`]+)`", PAGES[page])
    for text in (*of_text, *re.findall(r"^(?: {4}|\$ )ipcbus (.+)$", PAGES[page], re.MULTILINE)):
        words = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
        words.whitespace_split = True
        call = list(words)
        yield call[: next((n for n, word in enumerate(call) if word[0] in "|&;<>"), len(call))]


# The reference of the commands is generated from them, and shows how to write them, not calls.
@pytest.mark.parametrize("page", [page for page in PAGES if next(commands(page), None) and page != "reference/cli.md"])
def test_commands_have_the_options_that_pages_name(page: str) -> None:
    for call in commands(page):
        command: click.Command = cli
        # A command keeps its help option from the first context that it sees.
        context, rest = click.Context(cli, **cli.context_settings), call
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            found = command.get_command(context, rest[0])
            if rest[0] == "COMMAND":
                break
            assert found, f"{page}: there is no command: ipcbus {shlex.join(call)}"
            command, context, rest = found, click.Context(found, parent=context, info_name=rest[0]), rest[1:]
        try:
            command.make_context(context.info_name, list(rest), parent=context.parent)
        except (click.MissingParameter, click.exceptions.NoArgsIsHelpError, click.exceptions.Exit):
            pass  # a text names a command without its arguments, or asks for help
        except click.UsageError as error:
            text = error.format_message()  # a name of an option, or of a kind of value, may stand for its value
            assert re.search("does not exist|requires an argument|'NAME' is not", text), (
                f"{page}: ipcbus {shlex.join(call)}: {text}"
            )


def test_examples_are_found() -> None:
    assert CONFIGURE in WITH_EXAMPLES


def test_configure_shows_what_config_check_prints() -> None:
    write_files(CONFIGURE)
    (text,) = blocks(CONFIGURE, "console")
    command, *shown = text[: text.index("$ ipcbus config show")].splitlines()
    result = CliRunner().invoke(cli, command.split()[2:])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == shown


def test_configure_says_what_topics_do() -> None:
    write_files(CONFIGURE)
    config = Config.load("bus.toml")
    quote = config.values("source", "quotes.AAPL")
    assert (quote.transport, quote.implicit_batching_minimum_length) == ("lbtsmx", 1)
    assert config.values("source", "reports").transport == "lbtipc"
    assert config.values("receiver", "reports").ordered_delivery == -1
    assert config.values("receiver", "quotes.MSFT").ordered_delivery == 1
