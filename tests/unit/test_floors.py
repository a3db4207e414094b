"""Imports point down, siblings on a floor never meet, and floor 2 has no clock and no I/O."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.kit.cases import each_of
from tests.unit.sources import PACKAGES, ROOT, code_of, files, module_name, relative, statements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# From the ground up; what stands on one line are siblings. A module belongs to the longest name that fits it,
# so "ipcbus" is the public face: context.py, source.py, receiver.py and what else lies directly in ipcbus/.
FLOORS = (
    ("ringbuf",),
    ("ipcbus.errors",),
    ("ipcbus.config", "ipcbus.wire", "ipcbus.storage"),
    (
        *(
            "ipcbus.topic",
            "ipcbus.delivery",
            "ipcbus.reliability",
            "ipcbus.resolution",
            "ipcbus.recovery",
            "ipcbus.gmd",
        ),
        "ipcbus.shares",
    ),
    ("ipcbus.transport", "ipcbus.stats"),
    ("ipcbus",),
    ("ipcbus.archive",),
    ("ipcbus.spark",),
    ("ipcbus_tools",),
)
FLOOR_OF = {unit: floor for floor, units in enumerate(FLOORS) for unit in units}

# Time and bytes are passed in there, so that every rare case can run in virtual time from one seed. Compiled
# modules are exempt: the per-message path stamps and reads records in place.
# Of resolution the registries are files.
# Of guaranteed delivery the areas are files.
PURE = (
    *("ipcbus.topic", "ipcbus.delivery", "ipcbus.reliability", "ipcbus.resolution.network", "ipcbus.recovery"),
    "ipcbus.shares",
    *(f"ipcbus.gmd.{name}" for name in ("delivery_modes", "delivery_terms", "expected_names", "gmd_events")),
    *(f"ipcbus.gmd.{name}" for name in ("gmd_settings", "held_messages", "ready_messages")),
    *(f"ipcbus.gmd.{name}" for name in ("received_stream", "receiver_state")),
    *(f"ipcbus.gmd.{name}" for name in ("registered_receiver", "message_places", "sender_notes", "sender_state")),
)
IMPURE = (
    *("asyncio", "io", "mmap", "multiprocessing", "os", "pathlib", "posix_ipc", "random", "ringbuf.clock"),
    *("secrets", "select", "selectors", "signal", "socket", "subprocess", "tempfile", "threading", "time"),
)

WRITERS = ("ipcbus.reliability.reliability_reference",)
"""What only writes a page of the docs, and nobody imports."""

PASSED_IN = "random.Random"
"""The type of what draws, for annotations; what draws is handed in."""

BUILT_ON_THE_FACE = ("ipcbus.archive", "ipcbus.spark")
"""Packages that use public names only, and what `ipcbus.embedding` documents for them."""

COMPILED_FACE = ("ipcbus.delivery.received_message", "ipcbus.wire._wire_layout", "ringbuf.clock")
"""What compiled code of these packages may use besides: structs and functions that no Python module can export."""

SOURCES = files(*PACKAGES)

_CYTHON_IMPORT = re.compile(r"^[ \t]*(?:cimport|import)[ \t]+(.+)$", re.MULTILINE)
_CYTHON_FROM = re.compile(r"^[ \t]*from[ \t]+([\w.]+)[ \t]+(?:cimport|import)[ \t]+(?:\(([^)]*)\)|(.+))$", re.MULTILINE)


def imports(text: str, module: str, *, package: bool, cython: bool) -> Iterator[str]:
    """Absolute names of all that a source imports, names inside a module included."""
    for origin, name in _cython_imports(text) if cython else _python_imports(text):
        dots = len(origin) - len(origin.lstrip("."))
        base = origin.lstrip(".")
        if dots:
            parts = module.split(".")
            kept = parts[: len(parts) - dots + package]
            base = ".".join([*kept, base] if base else kept)
        yield f"{base}.{name}" if name else base


def _python_imports(text: str) -> Iterator[tuple[str, str]]:
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield "." * node.level + (node.module or ""), alias.name


def _cython_imports(text: str) -> Iterator[tuple[str, str]]:
    code = code_of(text).replace("\\\n", " ")
    for match in _CYTHON_IMPORT.finditer(code):
        for name in match.group(1).split(","):
            yield name.split()[0], ""
    for match in _CYTHON_FROM.finditer(code):
        for name in (match.group(2) or match.group(3)).split(","):
            if name.strip():
                yield match.group(1), name.split()[0]


def unit_of(name: str) -> str | None:
    """The part of the house that a name belongs to; None for what is not of this project."""
    while name:
        if name in FLOOR_OF:
            return name
        name = name.rpartition(".")[0]
    return None


def violations(text: str, module: str, *, package: bool = False, cython: bool = False) -> list[str]:
    """What a source imports against the rules."""
    own = unit_of(module)
    if own is None:
        return [f"{module} has no floor"]
    found = []
    for name in imports(text, module, package=package, cython=cython):
        other = unit_of(name)
        if other is not None and other != own and FLOOR_OF[other] >= FLOOR_OF[own]:
            found.append(f"{module} (floor {FLOOR_OF[own]}) imports {name} (floor {FLOOR_OF[other]})")
        if name == PASSED_IN:
            continue
        pure = f"{module}.".startswith(tuple(f"{name}." for name in PURE)) and module not in WRITERS
        if pure and not cython and f"{name}.".startswith(tuple(f"{impure}." for impure in IMPURE)):
            found.append(f"{module} imports {name}, but it has no clock and no I/O")
    return found


def is_public(name: str, *, cython: bool = False) -> bool:
    """Whether archive and Spark may import a name of this project."""
    package, _, rest = name.partition(".")
    module, _, attribute = rest.partition(".")
    if package == "ringbuf":
        return module == "codegen" or (cython and name.startswith(COMPILED_FACE))
    if module == "config":  # what the package exports, and the types of the options, but not its other modules
        return not attribute or attribute[0].isupper() or attribute.startswith("keywords")
    in_the_face = not module or module[0].isupper() or (ROOT / "ipcbus" / f"{module}.py").exists()
    return in_the_face or name.startswith(BUILT_ON_THE_FACE) or (cython and name.startswith(COMPILED_FACE))


def foreign_names(text: str, module: str, *, cython: bool = False) -> list[str]:
    """The names of this project that a source of archive or Spark imports though they are internal."""
    found = imports(text, module, package=False, cython=cython)
    return [name for name in found if unit_of(name) is not None and not is_public(name, cython=cython)]


def foreign_attributes(text: str) -> list[str]:
    """The private attributes of other modules' objects that a Python source uses."""
    nodes = list(ast.walk(ast.parse(text)))
    uses = [node for node in nodes if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr)]
    own = {node.attr for node in uses if isinstance(node.ctx, ast.Store)}
    own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    own |= {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return [ast.unparse(node) for node in uses if node.attr not in own]


def violations_of(path: Path) -> list[str]:
    """What a file imports against the rules."""
    return violations(
        path.read_text(), module_name(path), package=path.stem == "__init__", cython=path.suffix in (".pyx", ".pxd")
    )


def test_floors() -> None:
    assert not {relative(path): found for path in SOURCES if (found := violations_of(path))}


def test_archive_and_spark_use_public_names_only() -> None:
    found = {}
    for path in SOURCES:
        module, text, cython = module_name(path), path.read_text(), path.suffix in (".pyx", ".pxd")
        if module.startswith(BUILT_ON_THE_FACE):
            private = [] if cython else foreign_attributes(text)
            found[relative(path)] = [*foreign_names(text, module, cython=cython), *private]
    assert len(found) > 60
    assert not {path: names for path, names in found.items() if names}


def test_an_internal_name_is_seen() -> None:
    for line in (
        "from ipcbus.storage.files import Disk",
        "from ipcbus.config.option_checks import unknown_option",
        "from ipcbus.runtime import error_mapping",
        "import ringbuf.ring",
    ):
        assert foreign_names(line, "ipcbus.spark.session")
    assert foreign_attributes("def f(context):\n    return context._config.values('source', '')")
    assert not foreign_attributes("class A:\n    def __init__(self, b):\n        self._b = b\n        self._b.c()")


@each_of(
    ("module", "text"),
    [
        ("ringbuf.ring", "import ipcbus.errors"),
        ("ringbuf.ring", "def f():\n    from ipcbus.wire import header"),
        ("ipcbus.config.config", "from ipcbus import wire"),
        ("ipcbus.config.config", "from ipcbus import Context"),
        ("ipcbus.config.config", "from .. import Context"),
        ("ipcbus.topic.batch", "from ..delivery.demux import Demux"),
        ("ipcbus.topic.batch", "import time"),
        ("ipcbus.topic.batch", "from ringbuf import clock"),
        ("ipcbus.resolution.network.network_resolution", "import socket"),
        ("ipcbus.delivery.order", "import os.path"),
        ("ipcbus.stats.rates", "from ipcbus import transport"),
        ("ipcbus.context", "import ipcbus.archive.reader"),
        ("ipcbus.archive.log", "import ipcbus.spark"),
        ("ipcbus.spark.read_options", "import ipcbus_tools.cli"),
        ("elsewhere", ""),
    ],
)
def test_violation_is_seen(module: str, text: str) -> None:
    assert len(violations(text, module)) == 1


@each_of(
    ("module", "text"),
    [
        ("ringbuf.ring", "import numpy, ringbuf.layout\nfrom . import clock"),
        ("ipcbus.config.config", "from ipcbus.errors import ConfigError\nfrom .values import Option"),
        (
            "ipcbus.transport.ring.lbtipc",
            "import time\nfrom ipcbus.topic import batch\nfrom ringbuf.ring import Ring",
        ),
        ("ipcbus.context", "from ipcbus.source import Source\nfrom ipcbus import transport"),
        ("ipcbus_tools.cli", "from ipcbus import Context\nfrom ipcbus_tools import top"),
        ("ipcbus_tools.commands.pipeline_command", "import ipcbus.spark"),
    ],
)
def test_downward_import_is_fine(module: str, text: str) -> None:
    assert not violations(text, module)


@each_of(
    "line",
    [
        "from ipcbus.delivery.demux cimport Demux",
        "from ipcbus.delivery cimport (\n    demux,\n)",
        "    cimport ipcbus.delivery.demux as d",
        "from ..delivery.demux cimport Demux",
        "cimport ringbuf.ring, ipcbus.delivery.demux",
        "from ipcbus.delivery \\\n    cimport demux",
        "import ipcbus",
    ],
)
def test_violation_in_cython_is_seen(line: str) -> None:
    assert len(violations(f"cdef int x\n{line}\n", "ipcbus.topic.batch", cython=True)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "from ringbuf._atomics cimport load_acquire, store_release",
        "from libc.stdint cimport uint64_t  # import time",
        'def f():\n    """Shows.\n\n    import time\n    """',
    ],
)
def test_downward_cimport_is_fine(text: str) -> None:
    assert not violations(text, "ipcbus.topic.batch", cython=True)


def test_relative_import_in_a_package() -> None:
    found = list(imports("from . import a\nfrom .b import c", "ipcbus.topic", package=True, cython=False))
    assert found == ["ipcbus.topic.a", "ipcbus.topic.b.c"]
