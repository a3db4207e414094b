"""The source files of the project, as the tests about the code itself read them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]

# Directory in the repository -> the name under which it is imported.
PACKAGES = {"ringbuf": "ringbuf", "ipcbus": "ipcbus", "tools": "ipcbus_tools"}

_TRIPLE_QUOTED = re.compile(r'("""|\'\'\').*?\1', re.DOTALL)
_COMMENT = re.compile(r"#.*")


def files(*directories: str, suffixes: tuple[str, ...] = (".py", ".pyx", ".pxd", ".pyi")) -> list[Path]:
    """Every source file below some directories of the repository."""
    found = (path for directory in directories for path in (ROOT / directory).rglob("*"))
    return sorted(path for path in found if path.suffix in suffixes)


def relative(path: Path) -> str:
    """The path as error texts show it."""
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    """The name under which a file is imported."""
    directory, *parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join([PACKAGES[directory], *parts])


def is_generated(path: Path) -> bool:
    """Whether a tool wrote the file, as its first lines say."""
    return "generated" in "\n".join(path.read_text().splitlines()[:3]).lower()


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Every statement of a parsed source, in its order; most nodes are expressions, over which `ast.walk` goes too."""
    left = [tree]
    while left:
        node = left.pop()
        for name in ("cases", "finalbody", "orelse", "handlers", "body"):
            left.extend(reversed(getattr(node, name, ())))
        if isinstance(node, ast.stmt):
            yield node


def code_of(text: str) -> str:
    """A Cython source without comments and triple-quoted texts, line by line as it was."""
    blanked = _TRIPLE_QUOTED.sub(lambda match: "\n" * match.group().count("\n"), text)
    return _COMMENT.sub("", blanked)
