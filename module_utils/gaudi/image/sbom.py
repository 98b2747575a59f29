"""A bill of materials for an image, in CycloneDX 1.6 (ECMA-424), from what the inspection found inside it.

It lies beside the image record and is named by the image's id. The same image always gives the same bill: it has no
time, and its serial number is derived from the id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from ..base.documents import parse
from .inside import Checkout, ImageFindings
from .labels import LABEL

SPECIFICATION = "1.6"
SUFFIX = ".cdx.json"
FOLDER = "sbom"
"""Where bills lie, beside the image record."""
_DIRECTORY = "gaudi-serving:directory"
_SAID_BY = "gaudi-serving:said-by"
_COMMIT = f"{LABEL}.commit."
_PYTHON, _OF_SYSTEM = "pkg:pypi/", ("pkg:deb/", "pkg:rpm/")
# The keys that parsing needs; all others are ignored.
_FORM = {
    "bomFormat": str,
    "specVersion": str,
    "components": [{"name": str, "version": str, "purl?": str, "properties?": [{"name": str, "value": str}]}],
}


@dataclass(frozen=True)
class Contents:
    """The content of a bill: versions of Python distributions and system packages by name, commits by directory."""

    python: Mapping[str, str]
    system: Mapping[str, str]
    checkouts: Mapping[str, str]


def file_name(image_id: str) -> str:
    """Return a bill's file name for an image id (``sha256:`` and hexadecimal digits)."""
    return image_id.rpartition(":")[2] + SUFFIX


def serial_number(image_id: str) -> str:
    """Return a UUID derived from the image's id (RFC 9562, version 8)."""
    digits = list(hashlib.sha256(f"{LABEL}.sbom {image_id}".encode()).hexdigest()[:32])
    digits[12] = "8"
    digits[16] = "89ab"[int(digits[16], 16) % 4]
    said = "".join(digits)
    return f"urn:uuid:{said[:8]}-{said[8:12]}-{said[12:16]}-{said[16:20]}-{said[20:]}"


def bill(reference: str, image_id: str, inside: ImageFindings, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the bill of an image. ``labels``: those of our build, none for any other image."""
    name, _, tag = reference.rpartition(":")
    image: dict[str, Any] = {"type": "container", "bom-ref": image_id, "name": name, "version": tag}
    image["hashes"] = [{"alg": "SHA-256", "content": image_id.rpartition(":")[2]}]
    if labels:
        image["properties"] = [{"name": label, "value": value} for label, value in sorted(labels.items())]
    components = [
        *_system(inside),
        *(_library(f"{_PYTHON}{quote(each)}@{_quoted(version)}", each, version) for each, version in _sorted(inside)),
        *map(_checkout, inside.checkouts),
        *_built_away(inside, labels),
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": serial_number(image_id),
        "version": 1,
        "metadata": {"component": image, "tools": {"components": [{"type": "application", "name": "gaudi-serving"}]}},
        "components": components,
    }


def rendered(document: Mapping[str, Any]) -> str:
    """The text of a bill."""
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def contents(text: str) -> Contents:
    """Parse a bill. Raises ValueError, with a clause that begins with "it", for any other text."""
    document = parse(text, _FORM)
    if document["bomFormat"] != "CycloneDX":
        raise ValueError("it is no CycloneDX document")
    python, system, checkouts = {}, {}, {}
    for component in document["components"]:
        place = component.get("purl", "")
        if place.startswith(_PYTHON):
            python[component["name"]] = component["version"]
        elif place.startswith(_OF_SYSTEM):
            system[component["name"]] = component["version"]
        for said in component.get("properties", ()):
            if said["name"] == _DIRECTORY:
                checkouts[said["value"]] = component["version"]
    return Contents(python, system, checkouts)


def _sorted(inside: ImageFindings) -> list[tuple[str, str]]:
    return sorted(inside.packages.items())


def _quoted(version: str) -> str:
    """Quote a version for a package URL (purl), where a plus sign would be read as a blank."""
    return quote(version, safe=":~.-_")


def _library(place: str, name: str, version: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": place, "name": name, "version": version, "purl": place}


def _system(inside: ImageFindings) -> list[dict[str, Any]]:
    """Return the operating system and its packages as components."""
    distribution, release = inside.os
    found: list[dict[str, Any]] = []
    if distribution:
        found.append({"type": "operating-system", "bom-ref": "os", "name": distribution, "version": release})
    of = f"&distro={quote(distribution)}-{quote(release)}" if distribution else ""
    for name, version, architecture in inside.system:
        address = f"pkg:{inside.kind}/{quote(distribution or 'unknown')}/{quote(name)}@{_quoted(version)}"
        found.append(_library(f"{address}?arch={quote(architecture)}{of}", name, version))
    return found


def _checkout(checkout: Checkout) -> dict[str, Any]:
    """A git repository at its commit."""
    found: dict[str, Any] = {
        "type": "application",
        "bom-ref": f"{checkout.directory}@{checkout.commit}",
        "name": checkout.directory.rpartition("/")[2],
        "version": checkout.commit,
        "properties": [{"name": _DIRECTORY, "value": checkout.directory}],
    }
    if checkout.origin:
        found["externalReferences"] = [{"type": "vcs", "url": quote(checkout.origin, safe="/:@?=&%+~#")}]
    address = urlsplit(checkout.origin)
    path = address.path.removesuffix(".git").strip("/").lower()
    if address.netloc == "github.com" and path.count("/") == 1:
        found["purl"] = f"pkg:github/{quote(path)}@{checkout.commit}"
    return found


def _built_away(inside: ImageFindings, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return commits that left no checkout in the image, such as libfabric's; only a label names them."""
    seen = {checkout.commit for checkout in inside.checkouts}
    commits = {label[len(_COMMIT) :]: value for label, value in labels.items() if label.startswith(_COMMIT)}
    return [
        {
            "type": "library",
            "bom-ref": f"{name}@{commit}",
            "name": name,
            "version": commit,
            "properties": [{"name": _SAID_BY, "value": "label"}],
        }
        for name, commit in sorted(commits.items())
        if commit not in seen
    ]
