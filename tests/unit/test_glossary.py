"""docs/glossary.md: each of its words is in use; and the names of the fragments of the changelog."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from tests.unit.catalogue.documentation import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
READ = ("docs", "roles", "library", "module_utils", "playbooks", "simulator", "plugin_utils")
KINDS = {".md", ".py", ".yml"}


def terms(text: str) -> list[str]:
    """The words of the table: the first column, without what narrows a word down, such as "(of a node)"."""
    rows = re.findall(r"^\| (?P<words>[^|]+?) \| [^|]", text, re.MULTILINE)
    words = [word.strip() for row in rows for word in re.sub(r"\([^)]*\)", "", row).split(",")]
    return [word for word in words if word not in ("word", "---")]


def texts() -> Iterator[str]:
    """What people read and write, but the glossary itself."""
    yield (ROOT / "README.md").read_text(encoding="utf-8")
    for folder in READ:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in KINDS and path != GLOSSARY:
                yield path.read_text(encoding="utf-8")


@functools.cache
def everything() -> str:
    """All of it on one line: names are written with an underscore, and lines end in the middle of a term."""
    return re.sub(r"[\s#_]+", " ", "\n".join(texts())).lower()


def used(term: str) -> bool:
    return re.search(rf"\b{re.escape(term.lower())}(?:s|ed)?\b", everything()) is not None


def test_every_word_of_the_glossary_is_used() -> None:
    words = terms(GLOSSARY.read_text(encoding="utf-8"))
    assert len(words) > 50
    assert not [word for word in words if not used(word)]


def test_a_word_that_nobody_uses_is_found() -> None:
    assert not used("gobbledygook")
    assert terms("| word | meaning |\n| --- | --- |\n| gobbledygook (of a node), x | It is none. |\n") == [
        "gobbledygook",
        "x",
    ]


def test_the_changelog_has_no_name_of_a_fragment_in_it() -> None:
    """Without + towncrier takes the name for an issue, and ends the sentence with it."""
    names = [path.name for path in (ROOT / "changelogs/fragments").glob("*.md")]
    assert [name for name in names if not re.fullmatch(r"\+[A-Za-z0-9_.-]+\.(feature|bugfix|removal)\.md", name)] == []
