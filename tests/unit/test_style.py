"""The rules of docs/style.md that a program can check, over product text, help and docs."""

from __future__ import annotations

import ast
import re
import sys
from typing import TYPE_CHECKING, Final

from tests.kit.cases import each_of
from tests.unit.sources import PACKAGES, ROOT, files, is_generated, relative, statements

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGIN = r'(?:^|[.:;] |""")'
PHRASES: Final = {
    r"\b(?:for|to|from|by|with|on|at|than|as|but|and|lets?|tells?|gives?|of|is|not|,) who "
    r"(?:is|are|has|have|can|cannot|may|does|do|will|was|were|[a-z]+s)\b": "name the noun: 'receivers that ...'",
    _BEGIN + r"Who(?:m|ever)? (?![^.]*\?)": "name the noun: 'A receiver that ...'",
    r"\b(?:is|are|was|were|be) none\b": "'there is no ...', 'off', 'invalid', or say what it is",
    r"(?<![Tt]here )\b(?:is|are|was|were) no "
    r"(?!(?:longer|more|less|later|room|earlier|greater)\b)": "'is not a ...' or 'invalid'",
    r"\b[Ss]o (?:long|many|much)\b(?! as\b| that\b)": "the quantity with its noun: 'for 5 s', 'at most 64 messages'",
    r"\bthe same(?=[.,;:)]|$| by\b| of\b| for\b| to\b| with\b| in\b)": "'the same' with its noun",
    r"\btold\b(?! apart)": "'receives', 'is notified of', 'says', 'shows'",
    r"\b(?:[Nn]obody|[Ee]verybody|[Aa]nybody|[Ss]omebody|[Ww]hoever)\b": "the process, thread, receiver or user",
    r"\blest\b": "'so that ... not'",
    _BEGIN + r"Of (?:\w+ ){1,5}the\b": "the owner behind the thing",
    r"\b(?:It|They|He) (?:has|have|is|does|do|are)\.": "a whole sentence",
    r"\b(?:the wheel|bell ropes?|ropes?|inbox|outbox|shelf|teller|hold-?ups?)\b": "the term of the glossary",
    r"\btaken for\b": "'counts as', 'is treated as'",
}
"""What is not written, as a pattern, and what to write."""

_NOT_A_BEGIN = re.compile(r"(?:What|Who|Whom|Whose|Which|How|When|Where|Whether|So|Of|That)\b")
"""How the docstring of a function does not begin."""

_LITTLE = frozenset(
    (
        *("a", "an", "and", "by", "for", "in", "is", "it", "its", "of", "on", "or", "returns", "s", "that", "the"),
        *("this", "to", "whether"),
    )
)

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
STYLE_SHEET = ROOT / "docs" / "style.md"
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
SOURCES = [path for path in files(*PACKAGES) if not is_generated(path)]


def phrases(text: str) -> list[str]:
    """The phrases of a text that the style sheet rules out, each with what to write."""
    return [
        f"{text.count(chr(10), 0, match.start()) + 1}: {match.group().strip()!r}: {cure}"
        for pattern, cure in PHRASES.items()
        for match in re.finditer(pattern, text, re.MULTILINE)
    ]


def docstrings(text: str) -> Iterator[tuple[str, str, bool]]:
    """Name, docstring, and whether it is one of a function that is not a property."""
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found = ast.get_docstring(node)
            if found is not None:
                names = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
                is_value = isinstance(node, ast.ClassDef) or bool(names & {"property", "cached_property", "setter"})
                yield node.name, found, not is_value


_CYTHON = re.compile(
    r"^(?P<marks>(?:[ \t]*@[^\n]*\n)*)[ \t]*(?P<kind>cdef class|class|cpdef|cdef|(?:async )?def)\b[^\n]*?"
    r"(?P<name>\w+)\s*"
    r'(?:\([^"]*?\))?[^\n"]*:\n[ \t]*"""(?P<text>.*?)"""',
    re.MULTILINE | re.DOTALL,
)


def cython_docstrings(text: str) -> Iterator[tuple[str, str, bool]]:
    """As `docstrings`, of a Cython source."""
    for match in _CYTHON.finditer(text):
        is_function = "class" not in match["kind"] and "property" not in match["marks"]
        yield match["name"], match["text"], is_function


def wrong_docstrings(text: str, *, cython: bool = False) -> list[str]:
    """Docstrings of functions that do not begin with a verb, and docstrings that only repeat the name."""
    found = []
    for name, docstring, is_function in cython_docstrings(text) if cython else docstrings(text):
        first = docstring.strip().partition("\n")[0]
        if is_function and _NOT_A_BEGIN.match(first):
            found.append(f"{name}: begins with {first.split()[0]!r}; begin with a verb: 'Returns ...'")
        if repeats(name, docstring):
            found.append(f"{name}: {first!r} only repeats the name")
    return found


def repeats(name: str, docstring: str) -> bool:
    """Whether a docstring says nothing that the name does not."""
    words = re.findall(r"[a-z]+", docstring.lower())
    of_name = set(re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()))
    of_name |= {word + "s" for word in of_name} | {word.removesuffix("s") for word in of_name}
    return "\n" not in docstring.strip() and set(words) - _LITTLE <= of_name


def terms() -> list[str]:
    """The terms of the glossary, in its order."""
    rows = re.findall(r"^\| ([^|]+?) \| [^|]+ \|[^|]*\|$", GLOSSARY.read_text(), re.MULTILINE)
    return [row for row in rows if row not in ("term", "---")]


def test_phrases_of_pages() -> None:
    pages = [path for path in PAGES if path != STYLE_SHEET]
    assert not {relative(path): found for path in pages if (found := phrases(path.read_text()))}


def test_phrases_of_sources() -> None:
    """Comments, docstrings, error texts and help: a source is read as a whole."""
    assert not {relative(path): found for path in SOURCES if (found := phrases(path.read_text()))}


def test_docstrings_begin_with_a_verb_and_say_something() -> None:
    found = {
        relative(path): wrong_docstrings(path.read_text(), cython=path.suffix in (".pyx", ".pxd")) for path in SOURCES
    }
    assert not {path: wrong for path, wrong in found.items() if wrong}


def test_glossary_is_sorted_and_has_the_words_of_the_design() -> None:
    found = terms()
    assert found == sorted(set(found), key=str.lower)
    design = ("context", "source", "receiver", "session", "datagram", "delivery controller", "topic resolution")
    assert {*design, "session message", "pacing"} <= set(found)


def test_terms_of_the_style_sheet_and_the_glossary_are_linked() -> None:
    assert "reference/glossary.md" in STYLE_SHEET.read_text()
    assert "docs/style.md" in (ROOT / "CONTRIBUTING.md").read_text()


@each_of(
    "text",
    [
        "a twin for who cannot map the ring",
        "Who reads it goes on.",
        "the limit is none",
        "1.5 is no number",
        "waits for so long",
        "So many messages at most.",
        "LBT-RM does the same.",
        "the receiver is told of it",
        "nobody reads it",
        "Of a source the last number.",
        "It has.",
        "takes the wheel",
        "counts what is taken for lost",
    ],
)
def test_a_phrase_is_seen(text: str) -> None:
    assert phrases(text)


@each_of(
    "text",
    [
        "receivers that cannot map the memory",
        "Who reads it?",
        "there is no room",
        "not a number; the limit is off",
        "as long as it lives, so much that it fills",
        "the same session",
        "can be told apart",
        "is no longer there",
    ],
)
def test_plain_english_is_fine(text: str) -> None:
    assert not phrases(text)


@each_of(
    ("text", "wrong"),
    [
        ('def f():\n    """What it has."""', True),
        ('def f():\n    """Whether it is open."""', True),
        ('def f():\n    """Returns whether it is open."""', False),
        ('class A:\n    @property\n    def open(self):\n        """Whether messages may be sent."""', False),
        ('def window_size():\n    """Returns the window size."""', True),
        ('def window_size():\n    """Returns the window size in bytes."""', False),
        ('class OpenBatch:\n    """The open batch."""', True),
    ],
)
def test_a_wrong_docstring_is_seen(text: str, wrong: bool) -> None:
    assert bool(wrong_docstrings(text)) is wrong
    assert bool(wrong_docstrings(f"{text}\n", cython=True)) is wrong


def main(*arguments: str) -> None:
    """Prints what the rules find in files and folders."""
    for path in [*PAGES, *SOURCES]:
        if relative(path).startswith(arguments):
            text = path.read_text()
            wrong = wrong_docstrings(text, cython=path.suffix in (".pyx", ".pxd")) if path.suffix != ".md" else []
            print("".join(f"{relative(path)}:{found}\n" for found in [*phrases(text), *wrong]), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
