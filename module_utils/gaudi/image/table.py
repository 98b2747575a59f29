"""Images of nodes as text for people: which instance has which, and what each contains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.documents import misfit
from ..base.printable import printable
from ..base.refusal import Refusal
from ..base.reported import MOST_ENTRIES, UNREADABLE, sentence
from .inside import VENDOR
from .labels import BASE, BASE_DIGEST, LABEL, LOCK, labelled_versions

Node = Mapping[str, Any]
"""What engine.reported_images knows of a node: ``images`` and ``instances``."""

_TEXTS = {str: str}
_FORM = {
    "images": [
        {
            **dict.fromkeys(("reference", "id", "digest", "bill", "damaged"), str),
            **dict.fromkeys(("built", "python", "system", "checkouts"), _TEXTS),
            "present": bool,
            "parts": [str],
        }
    ],
    "instances": [{"instance": str, "image": str, "runs_in": str}],
}
_COMMIT, _RELEASED = f"{LABEL}.commit.", f"{LABEL}.released."
# Distributions shown first, beside the vendor's own.
_TOLD = (
    *(*VENDOR, "torch", "vllm", "vllm-gaudi", "vllm-hpu-extension"),
    *("neural-compressor-pt", "habana-quantization-toolkit", "transformers"),
)
_DIGITS = 12


def readable(nodes: Mapping[str, Any]) -> dict[str, Node]:
    """Return the nodes whose images are in the form of engine.reported_images; the others can report anything.

    Of each node at most MOST_ENTRIES images and instances are read.
    """
    return {
        name: {key: list(node[key])[:MOST_ENTRIES] for key in _FORM}
        for name, node in nodes.items()
        if misfit(node, _FORM) is None
    }


def short(image_id: str) -> str:
    """Return the first digits of an id, enough to tell images apart."""
    return image_id.rpartition(":")[2][:_DIGITS]


def commits(image: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return an image's commits: by repository its commit and the release's pin, "" without one."""
    labels = image["built"]
    built = {name[len(_COMMIT) :]: value for name, value in labels.items() if name.startswith(_COMMIT)}
    return {name: (commit, labels.get(_RELEASED + name, "")) for name, commit in sorted(built.items())}


def chosen(nodes: Mapping[str, Node], name: str) -> Mapping[str, Any]:
    """Return the image that a person names by its reference, its tag, or the beginning of its id.

    Raises Refusal if no node has it, or if the name matches several.
    """
    found = {image["id"]: image for _, image in _images(nodes) if name and _is_called(image, name)}
    if not found:
        known = sorted({image["reference"] for _, image in _images(nodes)})
        said = f"No node has an image {printable(name)!r} on record" if name else "No image is named"
        raise Refusal(
            "unknown_image",
            f"{said}. There are: {', '.join(known) or 'none'}. Name one by its reference, its tag, or the beginning of "
            "its id (-e image=NAME).",
        )
    if len(found) > 1:
        raise Refusal(
            "ambiguous_image",
            f"{printable(name)!r} stands for several images: {', '.join(sorted(map(short, found)))}. Name one by its "
            "id.",
        )
    return next(iter(found.values()))


def table(nodes: Mapping[str, Any]) -> list[str]:
    """Return lines: first nodes and instances with their images, then the content of each image, once."""
    others = [(name, "-", UNREADABLE, "-", "-") for name in nodes]
    nodes = readable(nodes)
    others = [row for row in others if row[0] not in nodes]
    lines = _columns(_rows(nodes, others))
    places: dict[tuple[str, str], list[str]] = {}
    images = {}
    for node, image in _images(nodes):
        key = (image["reference"], image["id"])
        places.setdefault(key, []).append(node)
        images[key] = image
    for key, image in sorted(images.items()):
        lines += ["", *describe(image, places[key])]
    return lines or ["no images on " + (", ".join(nodes) or "no node")]


def describe(image: Mapping[str, Any], nodes: Iterable[str], every: bool = False) -> list[str]:
    """Describe an image's content: ``every`` distribution and package, or only the most important ones."""
    labels, python = image["built"], image["python"]
    # The label does not tell where it was built: the image may have come from another node, a registry or a file.
    ours = f"{LABEL}.release" in labels
    made = f"built by this project from release {labels[f'{LABEL}.release']}" if ours else "ready-made"
    digest = f", digest {image['digest']}" if image["digest"] else ""
    lines = [image["reference"], f"  id {image['id']}{digest}", f"  {made}; on {', '.join(nodes)}"]
    if not image["present"]:
        lines.append("  on record, but not on the node any more")
    if BASE in labels:
        lines.append(f"  base {labels[BASE]} of {labels.get(BASE_DIGEST, 'an unknown digest')}")
    for name, (commit, released) in commits(image).items():
        pinned = "pinned by the release" if commit == released else f"the release pins {released or 'none'}"
        lines.append(f"  commit {name} {commit} ({pinned})")
    if ours:
        lines.append("  constraints " + (labels.get(f"{LABEL}.constraints") or "none"))
    if LOCK in labels:
        lines.append(f"  packages by the lock {labels[LOCK]}")
    lines += [f"  checkout {folder} {commit}" for folder, commit in sorted(image["checkouts"].items())]
    lines.append("  parts " + (", ".join(image["parts"]) or "none known"))
    told = sorted(python) if every else [name for name in _TOLD if name in python]
    versions = [f"  {name} {python[name]}{_otherwise(name, image)}" for name in told]
    if every and versions:
        system = [f"    {name} {version}" for name, version in sorted(image["system"].items())]
        versions = [
            "  Python distributions:",
            *(f"  {line}" for line in versions),
            "  packages of the system:",
            *system,
        ]
    lines += versions
    lines.append("  " + _rest(image))
    return [sentence(line) for line in lines]


def _otherwise(name: str, image: Mapping[str, Any]) -> str:
    """Return a label's version if it differs from the one found inside: somebody changed an image of ours."""
    said = labelled_versions(image["built"]).get(name, image["python"][name])
    return "" if said == image["python"][name] else f" (its label says {said})"


def _rest(image: Mapping[str, Any]) -> str:
    """Return where the full list is, or why there is none."""
    if image["damaged"]:
        return f"{image['damaged']}: the next run of site.yml writes it again"
    if not image["bill"]:
        return "nobody looked into it yet: the next run of site.yml does"
    counts = f"{len(image['python'])} Python distributions, {len(image['system'])} packages of the system"
    return f"{counts}: {image['bill']}"


def _images(nodes: Mapping[str, Node]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, image) for name, node in nodes.items() for image in node["images"]]


def _is_called(image: Mapping[str, Any], name: str) -> bool:
    digits = image["id"].rpartition(":")[2]
    same = name in (image["reference"], image["reference"].rpartition(":")[2], image["id"])
    return same or (len(name) >= 6 and digits.startswith(name.rpartition(":")[2]))


def _rows(nodes: Mapping[str, Node], others: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("NODE", "INSTANCE", "IMAGE", "ID", "RUNS IN")]
    for name, node in nodes.items():
        ids = {image["reference"]: image["id"] for image in node["images"]}
        for instance in node["instances"]:
            wanted, runs = ids.get(instance["image"], ""), instance["runs_in"]
            state = "-" if not runs else "it" if runs == wanted else f"another: {short(runs)}"
            rows.append((name, instance["instance"], instance["image"], short(wanted) or "-", state))
        used = {instance["image"] for instance in node["instances"]}
        rows += [
            (name, "-", each["reference"], short(each["id"]), "-")
            for each in node["images"]
            if each["reference"] not in used
        ]
    rows += others
    return rows if len(rows) > 1 else []


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    cells = [tuple(map(sentence, row)) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))] if cells else []
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]
