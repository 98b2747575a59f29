"""A model's pins in a file of their own beside its entry: commits, and checksums of the files that decide what runs."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..base.refusal import Refusal
from .hub_kinds import DEFAULT

# Configuration, tokenizer, code, measurements: what decides how weights are read. Weights themselves are large, and
# their checksums are in the record of each folder.
DECIDING = (".json", ".py", ".txt", ".model", ".jinja", ".npz")
# What runs when it is read: pickles, which weights in older formats are as well, and code that is compiled.
RUNNING = (
    *(".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".npy", ".h5", ".keras"),
    *(".pyc", ".pyd", ".so", ".sh"),
)
# Bytes that are read for a checksum: a tokenizer has some twenty million, a file of measurements some ten. Of larger
# files the hub's own is taken.
LARGEST = 64 * 1024 * 1024
# Parts of an entry that name repositories.
PARTS: tuple[tuple[str, ...], ...] = (("repositories",), ("measurements", "repositories"))
PINNED = ("revision", "files")


def decides(name: str) -> bool:
    """Whether a file decides what runs, by its name."""
    return name.lower().endswith((*DECIDING, *RUNNING))


def deciding(files: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of the files a hub lists (name, size, sha256), those to be pinned; large ones only where it states a checksum."""
    return [
        file for file in files if decides(str(file["name"])) and (int(file["size"]) <= LARGEST or file.get("sha256"))
    ]


def contradicted(recorded: Mapping[str, str], repository: str, repositories: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of files in a record (SHA-256 by name) that are not as pinned, or decide what runs beside pinned ones.

    ``repository`` is where the record says that they are from, ``repositories`` are those that the folder may be from,
    as the catalogue has them: what one of them allows is right. A file that is not there is nobody's.
    """
    known = list(repositories)
    found = []
    for said in [each for each in known if each["repository"] == repository] or known:
        pinned = said.get("files") or {}
        wrong = [name for name, sha256 in recorded.items() if pinned.get(name, sha256) != sha256]
        added = [name for name in recorded if pinned and decides(name) and name not in pinned]
        found.append(sorted([*wrong, *added]))
    return min(found, key=len, default=[])


def measurements_not_pinned(repository: str) -> Refusal:
    """Why measurements are not taken: whoever owns them could exchange what a server runs with, and by."""
    return Refusal(
        "measurements_not_pinned",
        f"{repository} holds measurements and is not pinned: whoever owns it decides what the server reads. Look at "
        "what is there and pin it (playbooks/pin.yml -e model=NAME -e write=true), then run this again",
    )


def block(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The content of a file of pins, from (revision, files) for ``weights`` and ``measurements``, as far as found."""
    made: dict[str, Any] = {}
    for name, path in zip(("weights", "measurements"), PARTS):
        if name in found:
            inner: dict[str, Any] = {DEFAULT: {key: found[name][key] for key in PINNED}}
            for key in reversed(path):
                inner = {key: inner}
            made.update(inner)
    return made


def with_pins(entry: Mapping[str, Any], pins: Mapping[str, Any] | None) -> dict[str, Any]:
    """An entry with the pins of its file; nothing else of the entry changes. Raises Refusal where the two disagree."""
    made = copy.deepcopy(dict(entry))
    for hub, path, said in _pins(pins or {}):
        place: Any = made
        for key in (*path, hub):
            place = place.get(key) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            raise Refusal(
                "pins_disagree",
                f"The pins of {entry.get('name')} name {'.'.join((*path, hub))}, which its entry does not have. Write "
                f"them anew (playbooks/pin.yml).",
            )
        for key in PINNED:
            if key in said and place.get(key, said[key]) != said[key]:
                raise Refusal(
                    "pins_disagree",
                    f"The pins of {entry.get('name')} have another {'.'.join((*path, hub, key))} than its entry. "
                    f"Remove one of the two.",
                )
            if key in said:
                place[key] = said[key]
    return made


def _pins(pins: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...], Mapping[str, Any]]]:
    """Hub, where it stands, and what is said of it. Raises Refusal for a file that is not one of pins."""
    if not isinstance(pins, Mapping) or not set(pins) <= {path[0] for path in PARTS}:
        raise Refusal("not_pins", "A file of pins holds repositories and measurements, and nothing else.")
    for path in PARTS:
        place: Any = pins
        for key in path:
            place = place.get(key, {}) if isinstance(place, Mapping) else {}
        for hub, said in place.items() if isinstance(place, Mapping) else ():
            if not isinstance(said, Mapping) or not set(said) <= set(PINNED):
                raise Refusal("not_pins", f"A file of pins says {' and '.join(PINNED)} of {hub}, and nothing else.")
            yield str(hub), path, said
