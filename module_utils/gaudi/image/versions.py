"""Version labels of a built image, known once the finished image was inspected."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .inside import ImageFindings
from .parts import NUMACTL
from .recipe import BASE, LABEL
from .requirements import project

VERSION_LABEL = f"{LABEL}.version."
"""What a label with a version begins with; the rest is the distribution's name as an index has it."""

UNLABELLED = "-unlabelled"
"""The end of an image's name until its labels say its versions."""

PYTHON = "python"
"""Stands among the names for the image's own Python."""

# The vendor's distributions, those built from checkouts, those that must match them, and the libraries of parts.
_TOLD = re.compile(
    r"(habana|torch|vllm|neural-compressor|pillow)[a-z0-9-]*|triton|numpy|ray|tokenizers|transformers|librosa|soundfile|"
    r"datasets"
)
_CONSTRAINED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
PLUGIN = "habana-torch-plugin"
"""The vendor's distribution in each of its images, in the version of its release."""
_BASE_NAME = re.compile(r"(?:^|/)gaudi-docker/([0-9]+(?:\.[0-9]+)+)/")
_VENDOR = "Habanalabs Ltd."
_VERSION = re.compile(r"[0-9][\w.+-]{0,39}")


def version_labels(inside: ImageFindings, constraints: str) -> dict[str, str]:
    """Return the version labels that a build adds to its image, sorted by name.

    constraints: the constraints file of the build; the distributions that it names get labels too.
    """
    named = {project(found[0]) for found in map(_CONSTRAINED.match, constraints.splitlines()) if found}
    versions = {name: version for name, version in inside.packages.items() if _TOLD.fullmatch(name) or name in named}
    versions.update({name: version for name, version, _ in inside.system if name == NUMACTL})
    versions[PYTHON] = inside.python
    return {f"{VERSION_LABEL}{name}": versions[name] for name in sorted(versions)}


def labelled_versions(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the versions in an image's labels, by name; none for an image without such labels."""
    size = len(VERSION_LABEL)
    return {name[size:]: version for name, version in sorted(labels.items()) if name.startswith(VERSION_LABEL)}


def release_in_name(reference: str) -> str | None:
    """Return the vendor's release in the name of its image; None for any other name."""
    named = _BASE_NAME.search(reference)
    return named[1] if named else None


def vendor_release(reference: str, labels: Mapping[str, str]) -> str | None:
    """Return the release of the vendor's software in an image; None where nothing says it.

    Known are, in this order: the version that a build of this project found in its image, the labels of the vendor's
    images for RHEL (its Dockerfiles, 1.14 to 1.22; those for Ubuntu have none), and the vendor's names for its images.
    """
    found = labelled_versions(labels).get(PLUGIN)
    if not found and labels.get("vendor") == _VENDOR:
        found = labels.get("release")
    # An image's label may have any text of any length.
    if found and _VERSION.fullmatch(found):
        return found
    return release_in_name(labels.get(BASE, "")) or release_in_name(reference)
