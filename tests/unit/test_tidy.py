"""Limits and habits of the code that no linter checks."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.unit.sources import PACKAGES, ROOT, code_of, files, is_generated, module_name, relative

if TYPE_CHECKING:
    from pathlib import Path

# A guide says about 400 lines a file (CONTRIBUTING); a coordinator may have up to this many.
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

ALL = files(*PACKAGES, "tests", "benchmarks", "examples")
PACKAGE_FILES = files(*PACKAGES)

# Names that each package may have.
EACH_PACKAGE = ("__init__", "__main__")

# Put together, so that this file does not find itself.
_UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"]) + r")\b")
_BANNED = re.compile(r"^[ \t]*assert\b.*|^.*\bpickle\b.*|^.*\btime\.sleep\b.*", re.MULTILINE)
_CYTHON_FUNCTION = re.compile(r"^([ \t]*)(?:cpdef|cdef|(?:async[ \t]+)?def)\b[^=\n]*\(")


def python_functions(text: str) -> dict[str, int]:
    """Lines of every function of a Python source, without decorators and docstring."""
    lengths = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            start = node.lineno
            if ast.get_docstring(node) is not None and first.end_lineno is not None:
                start += first.end_lineno - first.lineno + 1
            lengths[f"{node.name}:{node.lineno}"] = (node.end_lineno or start) - start + 1
    return lengths


def cython_functions(text: str) -> dict[str, int]:
    """Lines with code of every function of a Cython source, by indentation."""
    lines = code_of(text).splitlines()
    lengths = {}
    for number, line in enumerate(lines):
        head = _CYTHON_FUNCTION.match(line)
        if head is None:
            continue
        length = 1
        for follower in lines[number + 1 :]:
            stripped = follower.lstrip()
            if not stripped:
                continue
            # The closing bracket of a long parameter list stands at the indentation of the function.
            if len(follower) - len(stripped) <= len(head[1]) and not stripped.startswith(")"):
                break
            length += 1
        lengths[f"{line.strip()}:{number + 1}"] = length
    return lengths


# One test a rule, not one a file: a thousand small ones would cost more than they look at.
def too_long(path: Path) -> dict[str, int]:
    """What exceeds its limit in a source, with its lines."""
    text = path.read_text()
    functions = cython_functions(text) if path.suffix in (".pyx", ".pxd") else python_functions(text)
    found = {name: lines for name, lines in functions.items() if lines > MAX_FUNCTION_LINES}
    lines = len(text.splitlines())
    return found if is_generated(path) or lines <= MAX_FILE_LINES else {"the file": lines, **found}


def test_size() -> None:
    assert not {relative(path): found for path in ALL if (found := too_long(path))}


def test_file_names_are_unique() -> None:
    modules = {module_name(path) for path in PACKAGE_FILES if path.stem not in EACH_PACKAGE}
    names = Counter(name.rpartition(".")[2] for name in modules)
    assert not {name: count for name, count in names.items() if count > 1}


def test_each_module_of_the_runtime_has_a_unit_test_in_the_same_place() -> None:
    modules = [path for path in PACKAGE_FILES if relative(path).startswith("ipcbus/runtime/")]
    missing = [
        relative(path)
        for path in modules
        if path.stem not in EACH_PACKAGE
        and not list((ROOT / "tests" / "unit" / relative(path)).parent.glob(f"test_{path.stem}*.py"))
    ]
    assert modules
    assert missing == []


def test_nothing_unfinished() -> None:
    assert not {relative(path): found for path in ALL if (found := _UNFINISHED.findall(path.read_text()))}


# Assertions vanish under -O, unpickling runs what a peer sends, and a sleep waits for nothing in particular.
def test_no_assert_pickle_or_sleep() -> None:
    found = {relative(path): _BANNED.findall(code_of(path.read_text())) for path in PACKAGE_FILES}
    assert not {path: lines for path, lines in found.items() if lines}


@pytest.mark.parametrize("path", files(*PACKAGES, suffixes=(".pyx",)), ids=relative)
def test_compiled_module_has_declarations_and_types(path: Path) -> None:
    assert path.with_suffix(".pxd").exists()
    assert path.with_suffix(".pyi").exists()


def test_project_file_lists_every_package_and_extension() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {module_name(path) for path in PACKAGE_FILES if path.name == "__init__.py"}
    assert set(setuptools["packages"]) == packages | {"pyspark_ipcbus"}
    assert setuptools["package-dir"]["pyspark_ipcbus"] == "ipcbus/spark/discovery"
    extensions = {module_name(path): [relative(path)] for path in files(*PACKAGES, suffixes=(".pyx",))}
    assert {row["name"]: row["sources"] for row in setuptools["ext-modules"]} == extensions


def test_mypy_sees_the_tools_under_their_installed_name() -> None:
    assert (ROOT / "typings" / PACKAGES["tools"]).resolve() == ROOT / "tools"


def test_what_is_too_long_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("def f():\n" + "    pass\n" * MAX_FILE_LINES)
    assert too_long(path) == {"the file": MAX_FILE_LINES + 1, "f:1": MAX_FILE_LINES + 1}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("def f():\n    pass\n", 2),
        ("def f():\n    '''One.\n\n    Two.\n    '''\n    return 1\n", 2),
        ("@cache\ndef f(\n    a,\n):\n    return 1\n", 4),
    ],
)
def test_python_function_is_measured(text: str, lines: int) -> None:
    assert list(python_functions(text).values()) == [lines]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("cdef int f(int a) noexcept nogil:\n    # why\n\n    return 1\nx = 1\n", 2),
        ("cdef int f(\n    int a,\n) except -1:\n    return 1\n", 4),
        ("cdef class A:\n    cpdef g(self):\n        return 1\n    def h(self):\n        pass\n", 2),
    ],
)
def test_cython_function_is_measured(text: str, lines: int) -> None:
    assert set(cython_functions(text).values()) == {lines}


@pytest.mark.parametrize(
    "line",
    ["    assert x", "import pickle", "from pickle import loads", "time.sleep(1)", "x = pickle.dumps(y)"],
)
def test_banned_line_is_seen(line: str) -> None:
    assert _BANNED.findall(code_of(f"x = 1\n{line}\n"))


@pytest.mark.parametrize("line", ["_Static_assert(1)", "# assert x", '"""time.sleep"""', "assertion = 1"])
def test_harmless_line_is_fine(line: str) -> None:
    assert not _BANNED.findall(code_of(f"x = 1\n{line}\n"))


def test_nothing_promises_a_package_that_is_not_published() -> None:
    """It is installed from a clone (docs/how-to/install.md)."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ALL]
    wrong = re.compile(r"pip install [^\n`#;,]*\bipc" + r"bus\b")
    found = [relative(path) for path in pages if wrong.search(path.read_text())]
    assert found == []
