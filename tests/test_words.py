"""Docstrings, comments, names, help, errors and pages follow the rules of plain English that a program can check.

`python -m tests.test_words [PATH ...]` prints each breach, and the number of breaches of each room.
`python -m tests.test_words --write` lowers the numbers of long sentences in the list below to these; it raises none.

1. A docstring does not begin with *What, Who, Whether, How, Where, Those, One, Of*.
2. Actors have names: no *who, whoever, somebody, nobody, he*.
3. Each act has one verb (docs/glossary.md): no *put back, give back, set aside, put off, let go, told, said, anew*.
4. A page's sentences and a docstring's first sentence have at most 25 words.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent

FIRST_WORDS: Final = re.compile(r"(What|Whatever|Who|Whoever|Whose|Which|Whether|How|Where|Those|One|Of|It)\b")
ACTORS: Final = re.compile(r"\b(who|whom|whoever|somebody|someone|nobody|anybody|he|him|his)\b", re.IGNORECASE)
_UP_TO_3: Final = r"\s+(?:[\w'’]+\s+){0,3}?"
VERBS: Final = re.compile(
    rf"\b(?:put|puts|putting){_UP_TO_3}(?:back|aside|off)\b"
    rf"|\b(?:give|gives|gave|given|giving){_UP_TO_3}back\b"
    rf"|\b(?:set|sets|setting){_UP_TO_3}aside\b"
    rf"|\b(?:hold|holds|held|holding)\s+off\b"
    rf"|\b(?:let|lets|letting){_UP_TO_3}go\b"
    rf"|\b(?:take|takes|took|taken|taking){_UP_TO_3}away\b"
    r"|\b(?:told|said|anew)\b",
    re.IGNORECASE,
)
"""Verbs for which the glossary has another one."""

EXCEPTIONS: Final = {
    "tests/test_words.py": "names what it forbids",
}
"""Files that are not checked, each with the reason."""


LONG: Final[dict[str, int]] = {}
"""The most sentences of more than 25 words that each page may have. A number only falls; other files have none."""

MOST_WORDS: Final = 25


@dataclass(frozen=True, slots=True)
class Text:
    """One text of the code base, and where it stands."""

    file: Path
    line: int
    words: str
    docstring: bool = False


@dataclass(frozen=True, slots=True)
class Breach:
    """One breach of a rule."""

    text: Text
    found: str

    @property
    def room(self) -> str:
        """Return the folder of a Python or SQL file below src/tidemill, the folder below tests, or the page."""
        parts = self.text.file.relative_to(ROOT).parts
        if self.text.file.suffix == ".md":
            return "/".join(parts)
        return "/".join(parts[:-1] if parts[0] == "src" else parts[:-1][:2])

    def __str__(self) -> str:
        return (
            f"{self.text.file.relative_to(ROOT)}:{self.text.line}: {self.found!r} in: {self.text.words.strip()[:140]}"
        )


def _texts_of_python(file: Path) -> Iterator[Text]:
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    nodes = [*ast.walk(tree)]
    docstrings = [
        node.value
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    yield from (Text(file, node.lineno, node.value, docstring=True) for node in docstrings)
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield Text(file, node.lineno, _spelled(node.name))
    if file.is_relative_to(ROOT / "src"):
        yield from _strings(file, tree, {id(node) for node in docstrings})
    if _has_word_to_avoid(source):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield Text(file, token.start[0], token.string)


def _has_word_to_avoid(source: str) -> bool:
    """Return whether a line breaks a rule behind a `#`: tokens cost half of all CPU time, and few files need them."""
    return any(
        rule.search(comment)
        for line in source.splitlines()
        if (comment := line.partition("#")[2])
        for rule in (ACTORS, VERBS)
    )


def _strings(file: Path, node: ast.AST, passed_over: set[int]) -> Iterator[Text]:
    """Yield what users read: help, errors and logs, each f-string as one text."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.JoinedStr(values=values):
                parts = [value.value if isinstance(value, ast.Constant) else "X" for value in values]
                yield Text(file, child.lineno, "".join(map(str, parts)))
            case ast.Constant(value=str(words)) if id(child) not in passed_over and " " in words:
                yield Text(file, child.lineno, words)
            case _:
                yield from _strings(file, child, passed_over)


def _spelled(name: str) -> str:
    """Return the words of an identifier, with blanks between them."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ")


def _texts_of_sql(file: Path) -> Iterator[Text]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        before, dashes, comment = line.partition("--")
        if dashes and "'" not in before:
            yield Text(file, number, comment.replace("_", " ") if comment.startswith(" name:") else comment)


def _texts_of_page(file: Path) -> Iterator[Text]:
    source = file.read_text(encoding="utf-8")
    page = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), source, flags=re.DOTALL)
    line = 1
    for paragraph in re.split(r"(?<=\n)(?=\s*\n)", page):
        yield Text(file, line + len(paragraph) - len(paragraph.lstrip("\n")), paragraph)
        line += paragraph.count("\n")


def texts() -> Iterator[Text]:
    """Yield the texts of the whole code base."""
    for folder in ("src", "tests", "docs", "examples", "benchmarks", "tools"):
        for file in sorted((ROOT / folder).rglob("*")):
            if str(file.relative_to(ROOT)) in EXCEPTIONS:
                continue
            if read := {".py": _texts_of_python, ".sql": _texts_of_sql, ".md": _texts_of_page}.get(file.suffix):
                yield from read(file)
    for file in sorted(ROOT.glob("*.md")):
        yield from _texts_of_page(file)


def breaches_of(text: Text) -> Iterator[Breach]:
    """Yield the breaches of the rules in one text. Names in backticks and quoted words do not count."""
    words = re.sub(r"`[^`]*`", "`", text.words)
    if text.docstring and (first := FIRST_WORDS.match(words.lstrip())):
        yield Breach(text, first[0])
    for rule in (ACTORS, VERBS):
        for found in rule.finditer(words):
            yield Breach(text, " ".join(found[0].split()))


def long_sentences_of(text: Text) -> Iterator[Breach]:
    """Yield the long sentences of a page's paragraph, or a docstring's first sentence if it is long.

    Code in backticks is one word. Headings, tables and code blocks are no sentences, and a list item ends one.
    """
    if not (text.docstring or text.file.suffix == ".md"):
        return
    plain = re.sub(r"`[^`]*`", "X", re.sub(r"\]\([^)]*\)", "]", text.words.strip()))
    plain = re.sub(r"^(\||#|<).*$", "", plain, flags=re.MULTILINE)
    sentences = re.split(r"(?<=[.!?:])\W*\s+(?=\W*[A-Z])|\n\s*(?:[-*]|\d+\.) |\n\n", plain)
    for sentence in sentences[: 1 if text.docstring else None]:
        if (number := len(re.findall(r"\w[\w'’.-]*", sentence))) > MOST_WORDS:
            yield Breach(Text(text.file, text.line, " ".join(sentence.split())), f"{number} words")


@pytest.mark.parametrize(
    "words",
    [
        "Whether a file is there.",
        "The user who asks.",
        "It was given to a run back.",
        "Sets the rest aside.",
        "Told once.",
    ],
)
def test_the_rules_themselves(words):
    """A rule that never fails guards nothing."""
    assert [*breaches_of(Text(Path(__file__), 1, words, docstring=True))] != []


def test_a_name_in_code_is_no_sentence():
    """A page may name `put_back` as long as the API has it."""
    assert [*breaches_of(Text(Path(__file__), 1, "Call `put_back`: `who` is the user."))] == []


def test_a_long_sentence_is_found_and_code_is_one_word():
    """A reader loses the thread of a long sentence, and not of a long command."""
    long = Text(ROOT / "docs/page.md", 1, f"Short. A {'long ' * 25}one.")
    code = Text(ROOT / "docs/page.md", 1, f"Type `{'word ' * 30}` now.")

    assert [breach.found for text in (long, code) for breach in long_sentences_of(text)] == ["27 words"]


def breaches(of: Callable[[Text], Iterator[Breach]] = breaches_of) -> list[Breach]:
    """Return all breaches of the code base."""
    return [breach for text in _all_texts() for breach in of(text)]


@cache
def _all_texts() -> tuple[Text, ...]:
    return tuple(texts())


@pytest.mark.parametrize(("of", "left"), [(breaches_of, {}), (long_sentences_of, LONG)])
def test_each_room_keeps_the_rules(of, left):
    """A sentence that only its author can read costs each later reader a look into the code."""
    found = breaches(of)
    numbers = Counter(breach.room for breach in found)
    more = [str(breach) for breach in found if numbers[breach.room] > left.get(breach.room, 0)]

    assert more == []


def main() -> None:
    """Print the breaches below the named paths, and their number in each room; or lower the list to these numbers."""
    if sys.argv[1:] == ["--write"]:
        numbers = Counter(breach.room for breach in breaches(long_sentences_of))
        rows = [f'    "{page}": {number},\n' for page, most in LONG.items() if (number := min(most, numbers[page]))]
        this = Path(__file__)
        before, start, rest = this.read_text(encoding="utf-8").partition("LONG: Final = {\n")
        this.write_text(f"{before}{start}{''.join(rows)}{rest[rest.index('}') :]}", encoding="utf-8")
        return
    paths = tuple(sys.argv[1:]) or ("",)
    for of in (breaches_of, long_sentences_of):
        found = [breach for breach in breaches(of) if str(breach.text.file.relative_to(ROOT)).startswith(paths)]
        numbers = Counter(breach.room for breach in found)
        print(*found, sep="\n")
        print(*(f"{room}: {number}" for room, number in sorted(numbers.items())), len(found), sep="\n")


if __name__ == "__main__":
    main()
