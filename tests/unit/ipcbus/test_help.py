"""`help()` of the public face: every method has a text, compiled or not, and the example runs."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
import textwrap
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ipcbus
from tests.kit.cases import each_of

if TYPE_CHECKING:
    from collections.abc import Iterator

FACE: list[type] = [
    ipcbus.Context,
    ipcbus.EventQueue,
    ipcbus.Message,
    ipcbus.Queue,
    ipcbus.Receiver,
    ipcbus.Source,
    ipcbus.SourceEvent,
    ipcbus.WildcardReceiver,
]
COMPILED = ("ipcbus.topic.topic_source", "ipcbus.delivery.received_message", "ipcbus.delivery.puller")


def text_of(member: object) -> str:
    """The docstring, without the signature that the compiler may have put before it."""
    text = inspect.getdoc(member) or ""
    first, _, rest = text.partition("\n")
    return textwrap.dedent(rest).strip() if "(" in first.split(" ")[0] else text


def public(kind: type) -> Iterator[tuple[str, object]]:
    """The methods, properties and attributes of a class and those below it, and how it is made."""
    for name in dir(kind):
        if not name.startswith("_"):
            yield name, inspect.getattr_static(kind, name)
    made = inspect.getattr_static(kind, "__init__")
    if inspect.isfunction(made) and not is_dataclass(kind):
        yield "__init__", made


def parameters(member: object) -> list[str]:
    """The names of a method's parameters besides `self`."""
    if not callable(member):
        return []
    found = [each for each in inspect.signature(member).parameters.values() if each.name != "self"]
    return [f"**{each.name}" if each.kind is each.VAR_KEYWORD else each.name for each in found]


@each_of("kind", FACE, ids=lambda kind: str(kind.__name__))
def test_every_public_method_has_a_text_with_its_arguments(kind: type) -> None:
    described = set(re.findall(r"^    (\w+): ", text_of(kind), re.MULTILINE))  # attributes have no text of their own
    assert not [name for name, each in public(kind) if name not in described and len(text_of(each).split()) < 3]
    assert not {
        name: missing
        for name, member in public(kind)
        if (missing := [each for each in parameters(member) if f"    {each}: " not in text_of(member)])
        and "Use `Context." not in text_of(member)
    }


def test_fields_and_members_of_events_are_described() -> None:
    described = {
        ipcbus.SourceEvent: [each.name for each in fields(ipcbus.SourceEvent)],
        ipcbus.MessageFlag: list(ipcbus.MessageFlag.__members__),
        ipcbus.SourceEventType: list(ipcbus.SourceEventType.__members__),
    }
    for kind, names in described.items():
        assert not [name for name in names if f"    {name}: " not in text_of(kind)]


@pytest.mark.parametrize("module", COMPILED)
def test_compiled_classes_and_their_stubs_have_one_text(module: str) -> None:
    loaded = importlib.import_module(module)
    stub = ast.parse(Path(str(loaded.__file__)).with_name(f"{module.rpartition('.')[2]}.pyi").read_text())
    differing = []
    for kind in [node for node in stub.body if isinstance(node, ast.ClassDef)]:
        compiled = getattr(loaded, kind.name)
        if text_of(compiled) != (ast.get_docstring(kind) or ""):
            differing.append(kind.name)
        # Of overloads the last one has the text.
        functions = {each.name: each for each in kind.body if isinstance(each, ast.FunctionDef)}
        differing += [
            f"{kind.name}.{name}"
            for name, each in functions.items()
            if not name.startswith("_")
            and text_of(inspect.getattr_static(compiled, name)) != (ast.get_docstring(each) or "")
        ]
    assert not differing


def test_help_shows_the_text() -> None:
    shown = pydoc.plain(pydoc.render_doc(ipcbus.Source.send))
    assert "Sends one message" in shown
    assert "ipcbus.WouldBlock: " in shown


def test_the_example_of_the_package_runs(domain: str, capsys: pytest.CaptureFixture[str]) -> None:
    example = textwrap.dedent("\n".join(re.findall(r"^ {4}.*|^$", str(ipcbus.__doc__), re.MULTILINE)))
    assert example.count("ipcbus.Context()") == 1
    exec(example.replace("ipcbus.Context()", f"ipcbus.Context(domain={domain!r})"), {})
    lines = capsys.readouterr().out.splitlines()
    assert "BOS" in lines[0]
    assert lines[1:] == ["b'191.24'"]
