"""The files of catalog/, each checked against its schema: a finding is a sentence with file and key.

Modules run on nodes and cannot see them, so the controller reads them.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jsonschema

from plugin_utils import brain, releases

brain.on_path()

from ansible.module_utils.gaudi.base.absent import absent
from ansible.module_utils.gaudi.base.checks import HUB_ID, question
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.extends import extended, file_of
from ansible.module_utils.gaudi.families.registry import FAMILIES
from ansible.module_utils.gaudi.weights.pin_file import with_pins

from plugin_utils.yaml_files import load_yaml

CATALOG = brain.ROOT / "catalog"

# Findings shown of one file: enough to repair it, few enough to read.
MAX_FINDINGS = 5

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,95}\Z")


def close_matches(name: str, known: Iterable[str]) -> str:
    """ " Did you mean a or b?", or nothing where no name is near."""
    return question(difflib.get_close_matches(name.lower(), sorted(known), n=3, cutoff=0.6))


def of_same_name(name: str) -> list[str]:
    """The other models of the catalogue whose names begin with this one, or begin it: other weights of it may be."""
    stems = sorted(path.stem for path in (CATALOG / "models").glob("*.yml"))
    return [stem for stem in stems if stem.startswith(f"{name}-") or name.startswith(f"{stem}-")]


# Where a model's file names its repositories.
_REPOSITORY = re.compile(r"^ +repository: (\S+)$", re.MULTILINE)
# Least likeness of a suggestion, and how far it may be below the best.
_ALIKE, _BESIDE_BEST = 0.82, 0.08
_LEAST_LETTERS = 3


# For an id of a hub that no model's file has.
OF_HUB = (
    "Give weights: ID in place of model, or ask every release about its config.json (-e every_release=true "
    "-e model_config=FILE); docs/models.md shows both."
)


def _called() -> dict[str, list[str]]:
    """What each model of the catalogue is called: its name, and the ids that hubs have it under."""
    return {
        path.stem: [path.stem, *_REPOSITORY.findall(path.read_text(encoding="utf-8"))]
        for path in sorted((CATALOG / "models").glob("*.yml"))
    }


def _exact(name: str, known: Mapping[str, list[str]]) -> list[str]:
    return [stem for stem, called in known.items() if name.lower() in (each.lower() for each in called)]


def near_models(name: str) -> list[str]:
    """The models of the catalogue that a name, a hub id or a part of one may mean; the likeliest first, three at most.

    A hub id of a model's file means that model alone.
    """
    known = _called()
    exact = _exact(name, known)
    last = name.rpartition("/")[2]
    alike = {
        stem: max(_alikeness(last, each.rpartition("/")[2]) for each in called)
        for stem, called in known.items()
        if not exact or stem in exact
    }
    best = max(alike.values())
    near = [stem for stem, ratio in alike.items() if exact or ratio >= max(_ALIKE, best - _BESIDE_BEST)]
    return sorted(near, key=lambda stem: (-alike[stem], len(stem), stem))[:3]


def _alikeness(name: str, known: str) -> float:
    """How alike two names are, 0 to 1: one that is part of the other is more alike than one with other letters."""
    one, other = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (name, known))
    ratio = difflib.SequenceMatcher(None, one, other).ratio()
    within = len(one) >= _LEAST_LETTERS and one in other
    return 1 - (1 - ratio) / 10 if within else ratio


def _place(path: Iterable[str | int]) -> str:
    """``defaults.input_range[0]`` for a jsonschema path; empty for the whole file."""
    text = ""
    for part in path:
        # A key of several lines would break a sentence in two.
        name = str(part) if str(part).isprintable() else cut(part)
        text += f"[{part}]" if isinstance(part, int) else f".{name}" if text else name
    return text


def cut(value: object, limit: int = 60) -> str:
    """A value as JSON on one line, its end left out where it is long."""
    text = json.dumps(value, ensure_ascii=True, default=str, skipkeys=True)
    return text if len(text) <= limit else f"{text[:limit]}..."


# How a rule of the schema reads after "must be".
_RULES = {
    "enum": lambda rule: f"one of {', '.join(str(item) for item in rule)}",
    "minimum": lambda rule: f"at least {rule}",
    "maximum": lambda rule: f"at most {rule}",
    "maxLength": lambda rule: f"at most {rule} characters long",
    "minItems": lambda rule: f"a list of at least {rule}",
    "maxItems": lambda rule: f"a list of at most {rule}",
    "type": lambda rule: f"of type {rule}",
}


def sentence(error: jsonschema.ValidationError) -> str:
    """One finding of jsonschema as a sentence: the key, what is there, what would be right."""
    where = _place(error.absolute_path) or "the file"
    value: Any = error.instance
    rule: Any = error.validator_value
    schema: Mapping[str, Any] = error.schema if isinstance(error.schema, Mapping) else {}
    if error.validator == "additionalProperties":
        known = sorted(schema["properties"])
        unknown = sorted(str(key) for key in value if key not in known)
        shown = ", ".join(cut(key) for key in unknown[:3])
        return f"{where} has the unknown key {shown}.{close_matches(unknown[0], known)} Known: {', '.join(known)}."
    if error.validator == "required":
        # One finding a missing key; jsonschema puts its name first in the message.
        key = next(key for key in rule if key not in value and error.message.startswith(repr(key)))
        meaning = schema.get("properties", {}).get(key, {}).get("description")
        return f"{where} lacks the key {key}{f' ({meaning})' if meaning else ''}."
    if error.validator == "uniqueItems":
        return f"{where} names something twice."
    parts = [schema.get("description"), _RULES[str(error.validator)](rule) if error.validator in _RULES else None]
    right = ", ".join(part for part in parts if part) or "something else"
    return f"{where} is {cut(value)}, but must be {right}."


@functools.cache
def _validator(kind: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((CATALOG / "schemas" / f"{kind}.schema.json").read_text(encoding="utf-8"))
    if kind == "release":
        # The families that there are; the code has the only list of them.
        schema["properties"]["rules"]["enum"] = list(FAMILIES)
    return jsonschema.Draft202012Validator(schema)


def errors(kind: str, document: object) -> list[jsonschema.ValidationError]:
    """Everything wrong with a document of a kind (model, release, cards), in the order of its keys."""
    found = _validator(kind).iter_errors(document)
    return sorted(found, key=lambda error: [str(part) for part in error.absolute_path])


def findings(kind: str, document: object) -> list[str]:
    """Sentences about everything wrong with a document of a kind; empty when it is right."""
    return list(dict.fromkeys(sentence(error) for error in errors(kind, document)))


def _key(error: jsonschema.ValidationError) -> list[str | int]:
    """The key that a finding is about: the unknown or the missing one itself, not the mapping around it."""
    path = list(error.absolute_path)
    if error.validator == "additionalProperties":
        known = error.schema["properties"] if isinstance(error.schema, Mapping) else {}
        unknown: Any = error.instance
        return [*path, sorted(str(key) for key in unknown if key not in known)[0]]
    if error.validator == "required":
        wanted: Any = error.validator_value
        return [*path, next(key for key in wanted if error.message.startswith(repr(key)))]
    return path


def _refuse(found: Mapping[str, list[str]]) -> None:
    """Refuse a document with the findings of each file.

    Raises Refusal: there are some.
    """
    parts = []
    for file, sentences in found.items():
        more = f" (and {len(sentences) - MAX_FINDINGS} more)" if len(sentences) > MAX_FINDINGS else ""
        parts.append(f"{file}: {' '.join(sentences[:MAX_FINDINGS])}{more}")
    if parts:
        raise Refusal("wrong_catalogue_file", " ".join(parts))


def load_release(path: Path) -> dict[str, Any]:
    """A release with what it takes from those it extends, checked as a whole.

    Raises Refusal: with the file a key stands in, the key and what would be right.
    """

    def read(name: str) -> Any:
        file = path.parent / f"{name}.yml"
        return load_yaml(file, str(file.relative_to(CATALOG.parent)))

    release = extended(path.stem, names("releases"), read)
    found: dict[str, list[str]] = {}
    for error in errors("release", release.content):
        sentences = found.setdefault(release.file_with(_key(error)), [])
        if sentence(error) not in sentences:
            sentences.append(sentence(error))
    if not found:
        # A name is never taken from another file.
        own = release.files[path.stem].get("name")
        if own != path.stem:
            found[file_of(path.stem)] = [f"name is {own}, but must be the file's own name, {path.stem}."]
    _refuse(found)
    return dict(release.content)


def load_checked(kind: str, path: Path) -> dict[str, Any]:
    """One catalogue file, checked.

    Raises Refusal: with the file, and for each finding the key and what would be right.
    """
    if kind == "release":
        return load_release(path)
    shown = str(path.relative_to(CATALOG.parent))
    document = load_yaml(path, shown)
    found = findings(kind, document)
    pins = path.with_name(f"{path.stem}.pins.yaml")
    if kind == "model" and not found and pins.exists():
        shown = str(pins.relative_to(CATALOG.parent))
        document = with_pins(document, load_yaml(pins, shown))
        found = findings(kind, document)
    if not found and kind != "cards" and document["name"] != path.stem:
        found = [f"name is {document['name']}, but must be the file's own name, {path.stem}."]
    _refuse({shown: found} if found else {})
    return dict(document)


def names(folder: str) -> list[str]:
    """Names of all files of a catalogue folder (models, releases)."""
    return sorted(path.stem for path in (CATALOG / folder).glob("*.yml"))


def resolve(folder: str, word: str, name: object) -> Path:
    """The file for a name.

    Raises Refusal: there is none; with the names that are near.
    """
    known = names(folder)
    text = releases.named(str(name)) if folder == "releases" else str(name)
    if isinstance(name, str) and _NAME.match(text) and text in known:
        return CATALOG / folder / f"{text}.yml"
    sentence = absent(text[:100])
    # Far too many for a sentence.
    every = " docs/models.md lists them." if folder == "models" else f" Known: {', '.join(known)}."
    near = question(near_models(text[:100])) if folder == "models" else close_matches(text[:100], known)
    if folder == "models" and HUB_ID.fullmatch(text) and not _exact(text, _called()):
        near = f"{near} {OF_HUB}"
    hint = f" {sentence}" if sentence else near or every
    raise Refusal("not_in_catalogue", f"There is no {word} {cut(name)} in catalog/{folder}.{hint}")
