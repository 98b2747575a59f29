"""The rooms of module_utils/gaudi: what may be imported from where, and who may touch the world outside."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.unit.sources import nodes, tree

ROOT = Path(__file__).resolve().parent.parent.parent
BRAIN = ROOT / "module_utils" / "gaudi"
# The one room with input and output.
WORLD = "node"
MOST_MODULES = 32

# What a pure module may import of the standard library; where names stand, only these. First, what computes;
ALLOWED: dict[str, tuple[str, ...]] = dict.fromkeys(
    (
        *("re", "json", "math", "dataclasses", "typing", "collections", "collections.abc", "enum", "functools"),
        *("itertools", "hashlib", "csv", "shlex", "difflib", "string", "ipaddress", "statistics"),
    ),
    (),
)
ALLOWED["io"] = ("BytesIO", "StringIO")
ALLOWED["pathlib"] = ("PurePosixPath",)
# then, what some of them need besides, and why. None of it reads or writes.
NEEDED: dict[str, tuple[tuple[str, ...], str]] = {
    "__future__": (("annotations",), "annotations of later Pythons, on 3.9"),
    "ast": (("literal_eval",), "the lines of a bucket file are Python's literals, read without being run"),
    "base64": ((), "a picture in a question, a password in a header, the armour of a key"),
    "bisect": ((), "how many of a sorted list of buckets are below a number"),
    "configparser": (("ConfigParser", "Error"), "profiles of TuneD, which reads them with it"),
    "copy": ((), "an entry of the catalogue is changed in a copy of its own"),
    "errno": ((), "the numbers of the system's errors, which a sentence explains"),
    "email.utils": (("parsedate_to_datetime",), "the date until which an HTTP answer asks to wait"),
    "html": (("escape",), "a report shows words from outside"),
    "pickletools": (("genops",), "the steps of a pickle are told, and not taken"),
    "signal": (("Signals",), "the numbers of signals, which a container's status is made of"),
    "struct": (("pack",), "a picture, a film and a sound that a server is asked about"),
    "textwrap": ((), "pages have a width"),
    "urllib.parse": (("quote", "unquote", "urlsplit"), "the parts of an address"),
    "zlib": (("compress", "crc32"), "the packing and checksum of a PNG"),
}
ALLOWED.update({module: names for module, (names, _why) in NEEDED.items()})
# Python 3.9, the oldest on nodes, lacks these names of modules, and options of functions and decorators.
NEWER = {
    "itertools": ("batched", "pairwise"),
    "enum": ("StrEnum",),
    "typing": ("Concatenate", "Never", "NotRequired", "ParamSpec", "Required", "Self", "TypeAlias", "assert_never"),
}
NEWER_OPTIONS = {
    "zip": ("strict",),
    "dataclass": ("kw_only", "slots"),
    "bisect_left": ("key",),
    "bisect_right": ("key",),
}
# Built in, and of no use to a pure module.
FORBIDDEN_CALLS = ("__import__", "compile", "eval", "exec", "input", "open", "print")

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
MODULES = sorted(path for path in BRAIN.rglob("*.py") if path.name != "__init__.py")
PURE = [path for path in MODULES if BRAIN / WORLD not in path.parents]
PACKAGES = sorted(path for path in BRAIN.rglob("*") if path.is_dir() and path.name != "__pycache__")


def title(path: Path) -> str:
    return str(path.relative_to(BRAIN))


def parsed(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file of the project."""
    return nodes(tree(path))


def imports(code: Iterable[ast.AST]) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """(level, module, names) of every import, wherever it stands."""
    for node in code:
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", tuple(alias.name for alias in node.names)


def modules_named(path: Path, level: int, module: str, names: Sequence[str]) -> list[Path]:
    """Files that one relative import stands for; those that are not there as well."""
    place = path.parents[level - 1].joinpath(*module.split("."))
    return [place / f"{name}.py" for name in names] if place.is_dir() else [place.with_suffix(".py")]


def imported(path: Path, code: Iterable[ast.AST]) -> set[Path]:
    """Modules of the brain that a module imports."""
    relative = (said for said in imports(code) if said[0])
    return {file for level, module, names in relative for file in modules_named(path, level, module, names)}


def shipping_faults(path: Path, code: Iterable[ast.AST]) -> list[str]:
    """Why AnsiballZ, which reads import statements and nothing else, would not bring a module's imports to a node."""
    found = []
    for level, module, names in imports(code):
        full = [module, *(f"{module}.{name}" for name in names)]
        if level:
            missing = [file.name for file in modules_named(path, level, module, names) if not file.is_file()]
            found += [f"{'.' * level}{module} has no {file}" for file in missing]
        elif any(f"{said}.".startswith("ansible.module_utils.gaudi.") for said in full):
            found.append(f"{module} is imported by its full name")
        elif module.split(".")[0] == "importlib":
            found.append("an import made at run time is not shipped to the node")
    return found


def impurities(path: Path, code: Sequence[ast.AST]) -> list[str]:
    """How a module could touch something outside."""
    found = [f"{title(file)} is in {WORLD}" for file in imported(path, code) if BRAIN / WORLD in file.parents]
    for level, module, names in imports(code):
        if not level and module not in ALLOWED:
            found.append(f"{module} is not for pure modules: move what needs it to {WORLD}/")
        elif not level and ALLOWED[module] and not (names and set(names) <= set(ALLOWED[module])):
            found.append(f"of {module} only {', '.join(ALLOWED[module])}, each by its name")
    calls = [node.func for node in code if isinstance(node, ast.Call)]
    called = [call.id for call in calls if isinstance(call, ast.Name)]
    return [*found, *(f"{call}() is called" for call in called if call in FORBIDDEN_CALLS)]


def too_new(code: Sequence[ast.AST]) -> list[str]:
    """What a module uses that the oldest Python on nodes has not."""
    found = [
        f"{module}.{name}"
        for level, module, names in imports(code)
        for name in names
        if not level and name in NEWER.get(module, ())
    ]
    calls = [node for node in code if isinstance(node, ast.Call)]
    named = [(call.func.id, word.arg) for call in calls if isinstance(call.func, ast.Name) for word in call.keywords]
    return [*found, *(f"{call}({word}=)" for call, word in named if word in NEWER_OPTIONS.get(call, ()))]


def circles(graph: dict[Path, set[Path]]) -> list[str]:
    """Modules that import themselves through others, as the way through them."""
    found: list[str] = []
    done: set[Path] = set()

    def walk(path: Path, way: tuple[Path, ...]) -> None:
        if path in way:
            found.append(" -> ".join(file.stem for file in (*way[way.index(path) :], path)))
        elif path not in done:
            for other in sorted(graph[path]):
                walk(other, (*way, path))
            done.add(path)

    for path in graph:
        walk(path, ())
    return found


def test_imports_are_relative_and_static() -> None:
    assert not [f"{title(path)}: {fault}" for path in MODULES for fault in shipping_faults(path, parsed(path))]


def test_a_pure_module_touches_nothing() -> None:
    assert not [f"{title(path)}: {fault}" for path in PURE for fault in impurities(path, parsed(path))]


def test_pure_modules_need_everything_they_may_import() -> None:
    said = [(module, names) for path in PURE for level, module, names in imports(parsed(path)) if not level]
    assert set(NEEDED) <= {module for module, _names in said}
    for module, (names, _why) in NEEDED.items():
        assert set(names) <= {name for other, each in said for name in each if other == module}


def test_the_oldest_python_on_nodes_has_what_runs_there() -> None:
    files = [*MODULES, *(ROOT / "library").glob("*.py"), *(ROOT / "roles").glob("*/files/**/*.py")]
    assert not [f"{path.relative_to(ROOT)}: {name}" for path in files for name in too_new(parsed(path))]


def test_no_module_imports_itself_through_others() -> None:
    assert circles({path: imported(path, parsed(path)) for path in MODULES}) == []


def test_a_room_is_small_and_has_an_empty_door() -> None:
    assert not [title(folder) for folder in PACKAGES if (folder / "__init__.py").read_text(encoding="utf-8")]
    sizes = {title(folder): len([path for path in MODULES if path.parent == folder]) for folder in PACKAGES}
    assert {room: size for room, size in sizes.items() if size > MOST_MODULES} == {}


def test_docstrings_speak_one_dialect() -> None:
    """Sentences: "Raises Refusal where ...", ``names`` in two backticks; no sections and no roles of Sphinx."""
    other = re.compile(
        r"^ *(Args|Arguments|Attributes|Raises|Returns|Yields):$|:\w+:`|(?<![`\\])`(?!`)[^`\n]+`(?!`)", re.MULTILINE
    )
    places = ("action_plugins", "filter_plugins", "library", "module_utils", "plugin_utils", "roles")
    files = [path for place in places for path in (ROOT / place).rglob("*.py")]
    found = []
    for path in files:
        documented = [node for node in parsed(path) if isinstance(node, DOCUMENTED)]
        found += [
            f"{path.relative_to(ROOT)}: {match[0]}"
            for node in documented
            if (match := other.search(ast.get_docstring(node) or ""))
        ]
    assert not found


def test_a_room_has_its_own_tests() -> None:
    """Tests mirror the rooms."""
    tests = ROOT / "tests" / "unit"
    assert not [title(folder) for folder in PACKAGES if not [*(tests / title(folder)).glob("test_*.py")]]


def test_every_module_is_in_a_room() -> None:
    assert [path.name for path in BRAIN.glob("*.py")] == ["__init__.py"]
    assert [path.name for path in BRAIN.parent.glob("*.py")] == []


@pytest.mark.parametrize(
    ("text", "shipping", "impure"),
    [
        ("from ..base.units import human_bytes\nfrom . import entries\nimport re\n", [], []),
        ("from ..base.unit import x\n", ["..base.unit has no unit.py"], []),
        ("from . import entry\n", [". has no entry.py"], []),
        ("from ansible.module_utils import gaudi\n", ["by its full name"], ["ansible.module_utils is not for pure"]),
        ("import ansible.module_utils.gaudi.base\n", ["by its full name"], ["ansible.module_utils.gaudi.base is not"]),
        ("def later():\n    import importlib\n", ["at run time"], ["importlib is not for pure modules"]),
        ("from ..node import folders\n", [], ["node/folders.py is in node"]),
        ("import os\n", [], ["os is not for pure modules"]),
        ("from pathlib import Path, PurePosixPath\n", [], ["of pathlib only PurePosixPath"]),
        ("import io\n", [], ["of io only BytesIO, StringIO"]),
        ("text = open('x').read()\n", [], ["open() is called"]),
    ],
)
def test_what_breaks_the_rules_is_found(text: str, shipping: list[str], impure: list[str]) -> None:
    module, found_in = BRAIN / "catalogue" / "written_here.py", nodes(ast.parse(text))
    for found, expected in ((shipping_faults(module, found_in), shipping), (impurities(module, found_in), impure)):
        assert len(found) == len(expected)
        assert all(words in sentence for words, sentence in zip(expected, found, strict=True)), found


def test_what_is_too_new_is_found() -> None:
    text = "from itertools import chain, pairwise\nzip(a, b, strict=True)\ndataclass(frozen=True, slots=True)\n"
    assert too_new(nodes(ast.parse(text))) == ["itertools.pairwise", "zip(strict=)", "dataclass(slots=)"]


def test_a_circle_is_found() -> None:
    a, b, c = (BRAIN / f"{letter}.py" for letter in "abc")
    assert circles({a: {b}, b: {c}, c: {b}}) == ["b -> c -> b"]


def packages_imported() -> dict[str, set[str]]:
    """The other packages that each package imports."""
    seen: dict[str, set[str]] = {title(folder): set() for folder in PACKAGES}
    for path in MODULES:
        others = {title(file.parent) for file in imported(path, parsed(path))}
        seen[title(path.parent)] |= others - {title(path.parent)}
    return seen


def test_the_map_says_what_every_room_imports() -> None:
    """A row of docs/design.md: | ``package/`` | what it knows | ``imported``, ``imported`` |."""
    rows = [line.split("|") for line in (ROOT / "docs" / "design.md").read_text(encoding="utf-8").splitlines()]
    said = {row[1].strip(" `/"): set(re.findall(r"`([\w/]+)`", row[3])) for row in rows if len(row) == 5}
    seen = packages_imported()
    assert {room: said.get(room) for room in seen} == seen


def test_no_package_imports_itself_through_others() -> None:
    graph = {BRAIN / room: {BRAIN / other for other in others} for room, others in packages_imported().items()}
    assert circles(graph) == []


def test_links_are_for_mypy_and_for_a_playbook_without_ansible_cfg() -> None:
    """A file has one place; whoever needs it elsewhere imports it."""
    listed = subprocess.run(["git", "ls-files", "--stage"], cwd=ROOT, check=True, capture_output=True, text=True)
    links = [line.partition("\t")[2] for line in listed.stdout.splitlines() if line.startswith("120000")]
    assert links == ["playbooks/action_plugins/explain_log.py", "typings/ansible/module_utils/gaudi"]


def test_one_place_words_the_question_which_name_was_meant() -> None:
    programs = (path for top in ("module_utils", "plugin_utils", "library") for path in (ROOT / top).rglob("*.py"))
    asking = [path for path in programs if "Did you mean {" in path.read_text(encoding="utf-8")]

    assert asking == [BRAIN / "base" / "checks.py"]
