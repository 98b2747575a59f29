"""The labels of an image: their names, and the versions that they say."""

from __future__ import annotations

import re
from collections.abc import Mapping

LABEL = "gaudi-serving.image"
"""What the labels of a built image begin with."""

BASE = f"{LABEL}.base"
"""The label with the base image, without a registry."""

LOCK = f"{LABEL}.lock"
"""The label with the SHA-256 of the lock, of an image that was built from one."""

BASE_DIGEST = f"{LABEL}.base-digest"
"""The label with the digest of the base image that was really built on, which only a build knows."""

VERSION_LABEL = f"{LABEL}.version."
"""What a label with a version begins with; the rest is the distribution's name as an index has it."""

PLUGIN = "habana-torch-plugin"
"""The vendor's distribution in each of its images, in the version of its release."""

_BASE_NAME = re.compile(r"(?:^|/)gaudi-docker/([0-9]+(?:\.[0-9]+)+)/")
_VENDOR = "Habanalabs Ltd."
_VERSION = re.compile(r"[0-9][\w.+-]{0,39}")


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
