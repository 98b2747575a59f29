"""A model's pins, in a file beside its catalogue entry: commits, and checksums of deciding files.

Any file may decide how weights are read, or run when it is read, except plain weights, notes and pictures.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ..base.checks import HUB_ID, mapping, matching, shown
from ..base.command_line import PICKLED
from ..base.printable import printable
from ..base.refusal import Refusal
from .hub_kinds import DEFAULT

# Weights in a format that cannot run code. They are large; their checksums are in each folder's record.
PLAIN_WEIGHTS = (".safetensors",)
# What a hub or a person puts beside weights for people to read. Text counts as a note by its name alone: vocab.txt and
# merges.txt decide what a tokenizer does.
NOTE = re.compile(
    r"\.gitattributes|[^/]+\.(md|png|jpe?g|gif|pdf)|(readme|licen[cs]e|notice|use_policy)[^/.]*(\.(txt|rst))?"
)
# What huggingface_hub keeps of its downloads in the folder of a model; no loader reads it.
DOWNLOADS = re.compile(r"\.cache/huggingface/([^/]+/)*(\.gitignore|cachedir\.tag|[^/]+\.(metadata|lock|incomplete))")
# Largest file in bytes that is read for its checksum: tokenizers have up to some twenty million, measurements some ten.
# For larger files the hub's own checksum is used.
LARGEST = 64 * 1024 * 1024
# Keys of an entry with repositories.
PARTS: tuple[tuple[str, ...], ...] = (("repositories",), ("measurements", "repositories"))
PINNED = ("revision", "files")
# What pins a repository. A commit names content only for those who can hash all of it, as git does: a hub that is asked
# over its own interface may answer for that commit with any files.
BY_CHECKSUMS, BY_COMMIT, UNPINNED = "pinned by checksums", "pinned by commit only", "not pinned"
_COMMIT = re.compile(r"[0-9a-f]{40}")
# The option of a site.
OF_SITE = "model_weights_commits"


def pinned_by(source: Mapping[str, Any]) -> str:
    """Return what pins a repository of an entry (revision, files): BY_CHECKSUMS, BY_COMMIT or UNPINNED."""
    if not _COMMIT.fullmatch(str(source.get("revision") or "")):
        return UNPINNED
    return BY_CHECKSUMS if source.get("files") else BY_COMMIT


def with_checksums(repositories: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return those of the repositories (by kind of hub) that are pinned by checksums."""
    return {kind: source for kind, source in repositories.items() if pinned_by(source) == BY_CHECKSUMS}


def binding(repositories: Mapping[str, Mapping[str, Any]], kinds: Collection[str]) -> list[Mapping[str, Any]]:
    """Return the repositories (by kind of hub) that another node's copy may be from.

    Those of the site's hubs (``kinds``), all where none of these has any; and of them only those that checksums pin, if
    there are any: a node could claim to have its files from a repository without pins.
    """
    known = {kind: source for kind, source in repositories.items() if kind in kinds} or repositories
    return list((with_checksums(known) or known).values())


def needs_pin(name: str) -> bool:
    """Whether a file must not lie beside pinned ones without a pin of its own, by its name.

    Which files a loader reads depends on its release and on configuration: tokenizers alone have a dozen formats.
    """
    lower = name.lower()
    note = NOTE.fullmatch(lower.rpartition("/")[2]) or DOWNLOADS.fullmatch(lower)
    return not (lower.endswith(PLAIN_WEIGHTS) or note)


def deciding(files: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return those files of a hub's listing (name, size, sha256) to pin; large ones only with its checksum."""
    return [
        file for file in files if needs_pin(str(file["name"])) and (int(file["size"]) <= LARGEST or file.get("sha256"))
    ]


def contradicted(recorded: Mapping[str, str], repository: str, repositories: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return files in a record (SHA-256 by name) that contradict the pins, or need a pin and have none.

    ``repository``: the recorded origin. ``repositories``: the possible origins, as in the catalogue; a file is right if
    one of them allows it. Missing files are not reported.
    """
    known = list(repositories)
    found = []
    for said in [each for each in known if each["repository"] == repository] or known:
        pinned = said.get("files") or {}
        wrong = [name for name, sha256 in recorded.items() if pinned.get(name, sha256) != sha256]
        added = [name for name in recorded if pinned and needs_pin(name) and name not in pinned]
        found.append(sorted([*wrong, *added]))
    return min(found, key=len, default=[])


def differing(found: Mapping[str, str], repositories: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return files (SHA-256 by name) that differ from the pins, or need one and have none; sorted.

    A file without a checksum ("") always differs. ``repositories``: the possible origins, as in the catalogue; the
    files are right if one of them allows all.
    """
    wrong = []
    for source in repositories:
        pins = source.get("files") or {}
        allowed = {name: pins.get(name, None if needs_pin(name) else sha256) for name, sha256 in found.items()}
        wrong.append(sorted(name for name, sha256 in found.items() if not sha256 or allowed[name] != sha256))
    return min(wrong, key=len, default=[])


def measurements_not_pinned(repository: str) -> Refusal:
    """Return the refusal of unpinned measurements: the owner of the repository could replace what a server executes."""
    return Refusal(
        "measurements_not_pinned",
        f"{repository} holds measurements and is not pinned: whoever owns it decides what the server reads. Look at "
        "what is there (playbooks/pin.yml -e model=NAME shows commit, files and sizes), and accept it: name its commit "
        "in model_weights_commits, or pin its checksums (-e write=true). Then run this again",
    )


def pickles_not_pinned(where: str, model: str = "NAME") -> Refusal:
    """Return the refusal of unpinned pickled tensors: their sender decides what a server executes.

    ``where``: what has or reads them, for people. ``model``: their entry.
    """
    return Refusal(
        "pickles_not_pinned",
        f"{where}: the weights are in pickled tensors ({', '.join(PICKLED)}) alone, whose code the servers of this "
        f"release run, and no checksum pins them: the hub, a mirror or another node decides what that code is. "
        f"Safetensors or checksums of all files are required. Fetch a repository with safetensors, pin the files of "
        f"the model's catalogue entry (ansible-playbook playbooks/pin.yml -e model={model} -e write=true), or use a "
        f"later release",
    )


def block(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of a pin file, from (revision, files) of ``weights`` and ``measurements``, if found."""
    made: dict[str, Any] = {}
    for name, path in zip(("weights", "measurements"), PARTS):
        if name in found:
            inner: dict[str, Any] = {DEFAULT: {key: found[name][key] for key in PINNED}}
            for key in reversed(path):
                inner = {key: inner}
            made.update(inner)
    return made


def with_pins(entry: Mapping[str, Any], pins: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an entry with its file's pins added. Raises Refusal if the two contradict each other."""
    made = copy.deepcopy(dict(entry))
    for hub, path, said in _pins(pins or {}):
        place: Any = made
        for key in (*path, hub):
            place = place.get(key) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            raise Refusal(
                "pins_disagree",
                f"The pins of {entry.get('name')} name {'.'.join((*path, hub))}, which its entry does not have. Write "
                f"them again (playbooks/pin.yml).",
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


def commits(value: object) -> dict[str, str]:
    """Read a site's option model_weights_commits: the commit of each repository that it accepts. Raises Refusal."""
    read = {}
    for repository, commit in mapping(value, OF_SITE).items():
        matching(repository, f"{OF_SITE} (a repository)", HUB_ID, "OWNER/NAME")
        what = f"{OF_SITE}[{shown(repository)}]"
        read[repository] = matching(commit, what, _COMMIT, "a whole commit id of 40 hexadecimal digits")
    return read


def with_commits(entry: Mapping[str, Any], accepted: Mapping[str, str]) -> dict[str, Any]:
    """Return an entry with the site's commits of repositories (by name) that it names none of.

    Raises Refusal where the entry or its pins name another commit.
    """
    made = copy.deepcopy(dict(entry))
    for path in PARTS:
        place: Any = made
        for key in path:
            place = place.get(key) or {}
        for source in place.values():
            commit = accepted.get(source["repository"])
            if commit is not None and source.setdefault("revision", commit) != commit:
                raise Refusal(
                    "pins_disagree",
                    f"{OF_SITE} has the commit {commit} of {source['repository']}, but catalog/models has "
                    f"{source['revision']}. Remove it from {OF_SITE}, or change the entry.",
                )
    return made


def listing(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what pins would trust, for people: of each repository commit, files that decide and bytes of all files.

    ``found``: by part of an entry what model_pins_info answered (repository, revision, files, sizes).
    """
    blocks = []
    for part, said in found.items():
        sizes = said["sizes"]
        names = sorted(sizes)
        width = max((len(str(size)) for size in sizes.values()), default=1)
        lines = [
            f"{sizes[name]:>{width}} bytes  {said['files'].get(name, 'by the record of the fetch')}  {printable(name)}"
            for name in names
        ]
        total = f"{len(names)} files, {sum(sizes.values())} bytes"
        accept = f"{OF_SITE}: {{{said['repository']}: {said['revision']}}}"
        blocks.append("\n".join([f"{part}: {said['repository']} at {said['revision']}, {total}", *lines, accept]))
    return "\n\n".join(blocks)


def _pins(pins: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...], Mapping[str, Any]]]:
    """Yield hub, path of keys, and pins. Raises Refusal for a file that is not a pin file."""
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
