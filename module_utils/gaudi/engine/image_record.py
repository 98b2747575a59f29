"""The record of a node's serving images: digests, contents, and which image each instance used."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.documents import parse
from ..base.refusal import Refusal
from ..image.labels import LABEL
from ..image.recipe import check_pushed
from ..image.requirements import project

SCHEMA = 1
_FORM = {
    "images": {
        str: {
            "id?": str,
            "digest?": (str, type(None)),
            "packages?": {str: str},
            "built?": {str: str},
            # A list of texts; earlier releases of this project wrote one text.
            "checked?": (list, str),
            "parts?": [str],
            "python?": str,
            # The runtime of the last check, if it differs from that of instances.
            "runtime?": str,
        }
    },
    "history?": {str: [str]},
}
# Added to a sentence about a damaged record. The only loss is which images earlier plans used.
REWRITTEN = "It is written again: images are looked into again, and those of earlier plans stay on the node."
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class ImageRecord:
    """The content of the record.

    images: by reference. history: the images of each instance, newest first; "" stands for no instance.
    """

    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> ImageRecord:
        """Read a record file; records of earlier releases hold no history. Raises ValueError."""
        document = parse(text, _FORM, SCHEMA)
        return cls(dict(document["images"]), dict(document.get("history", {})))


def render_record(images: Mapping[str, Mapping[str, Any]], history: Mapping[str, Sequence[str]] | None = None) -> str:
    """Write a record file."""
    document = {"schema": SCHEMA, "images": images, **({"history": history} if history else {})}
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def digest_of(inspected: Mapping[str, Any], reference: str) -> str | None:
    """Return the registry digest that the engine recorded for ``reference``; None for an image that was not pulled.

    An image has one digest for each repository it was pulled from.
    """
    repository = repository_of(reference)
    for known in inspected.get("RepoDigests") or []:
        name, _, digest = str(known).partition("@")
        if name == repository and _DIGEST.fullmatch(digest):
            return digest
    return None


def built_labels(inspected: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels that our build put on an image; none for any other image."""
    labels = (inspected.get("Config") or {}).get("Labels") or {}
    return {str(name): str(value) for name, value in labels.items() if str(name).startswith(f"{LABEL}.")}


def repository_of(reference: str) -> str:
    """Return an image reference without its tag and digest; a port of the registry is no tag."""
    name = reference.partition("@")[0]
    head, slash, last = name.rpartition("/")
    return head + slash + last.partition(":")[0]


def pinned(reference: str, digest: str) -> str:
    """Return a reference to the image with a digest; the reference itself without one, or where it has its own."""
    return f"{repository_of(reference)}@{digest}" if digest and "@" not in reference else reference


def check_digest(reference: str, seen: str | None, pinned: str) -> None:
    """Compare a digest with the pinned one; an empty pin accepts any.

    Raises Refusal when they differ: a tag was moved, or a mirror holds something else.
    """
    if pinned and seen != pinned:
        raise Refusal(
            "digest_differs",
            f"{reference} has the digest {seen or 'of no registry (it was built or loaded here)'}, "
            f"but the release pins {pinned}. "
            "Either the tag was moved or the mirror holds another image: pull the pinned one into the mirror, "
            "or correct the release file if the new image is the right one.",
        )


def check_pulled(reference: str, *, pushed: bool) -> None:
    """Refuse to pull an image that the site builds, unless its build host has pushed it to a registry of the site.

    reference: with a tag. pushed: whether built images are pushed. Raises Refusal.
    """
    if pushed:
        check_pushed(repository_of(reference))
        return
    raise Refusal(
        "built_image_absent",
        f"{reference} is not on this node, which needs it. It is built here (serving_image_build: true), or copied "
        "from the node that built it, and never pulled: a registry may have another image under that name. Run "
        "ansible-playbook playbooks/build_image.yml, which builds it, and then this again.",
    )


def moved(reference: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Say that a name now belongs to another image than on record; None if it does not, or if none is on record.

    before: the record's entry. now: what the engine reports. An id differs by how the engine stores images, so that
    only an image without a digest is compared by it.
    """
    digest, image = before.get("digest"), before.get("id")
    if digest is not None and digest != now["digest"]:
        return (
            f"{reference} is another image now: its digest is {now['digest'] or 'of no registry'}, and was {digest}. "
            "Its tag was moved, or somebody loaded another image. Pin it with serving_image_digest where that is not "
            "wanted."
        )
    if digest is None and image is not None and image != now["id"]:
        return (
            f"{reference} is another image now: its id is {now['id']}, and was {image}. Somebody built or loaded "
            f"another image under this name. Where that is not wanted, remove it (docker image rm {reference}) and run "
            "again."
        )
    return None


def parse_packages(text: str) -> dict[str, str]:
    """Parse ``pip list --format json``: versions by normalised name (PEP 503).

    Raises Refusal for any other text.
    """
    try:
        listed = json.loads(text)
        return {project(str(package["name"])): str(package["version"]) for package in listed}
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise Refusal(
            "pip_list_unreadable", f"pip list printed something else than a list of packages: {text[:200]!r}"
        ) from error


def check_packages(reference: str, packages: Mapping[str, str], needed: Sequence[str]) -> dict[str, str]:
    """Return the versions of the packages that a serving image must contain.

    Raises Refusal, with what to do, if one is missing.
    """
    missing = [name for name in needed if project(name) not in packages]
    if not missing:
        return {name: packages[project(name)] for name in needed}
    advice: list[str] = []
    if "habana-torch-plugin" in missing:
        advice.append("It is no image of the Gaudi software: check gaudi_image_registry and the image of the release.")
    elif "vllm" in missing:
        advice.append(
            "The vendor's own image comes without vLLM. Set serving_image_build: true to have one built from it with "
            "the release's pins (docs/images.md), or name a ready image in serving_image_ref. Where it is set, someone "
            f"gave this name to another image: docker image rm {reference}, then run again."
        )
    raise Refusal(
        "image_lacks_package", f"{reference} holds no {' and no '.join(missing)} (pip list in it). " + " ".join(advice)
    )
