"""Find names that can move: the tag of an image, the branch of a repository.

Each is a sentence for a node's report: a finding, or with ``gaudi_require_pins`` a problem.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base.checks import shown
from ..weights.hub_kinds import hub_kind
from ..weights.pin_file import measurements_not_pinned

_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# A run that requires pins ends before the image is asked, whatever its tags.
_PRINTS = "`site.yml --tags serving_image -e gaudi_require_pins=false` prints it"


def image_sentences(images: Iterable[str], digest: str) -> list[str]:
    """Return a sentence for each image of a plan that only has a tag; ``digest``: serving_image_digest of the site."""
    if digest:
        return []
    return [
        f"The image {image} is not pinned: its tag can be moved, and then nodes serve with different images. Write its "
        f"digest into the inventory as serving_image_digest; {_PRINTS}."
        for image in sorted(set(images))
        if "@" not in image
    ]


def digest_refusals(digest: str) -> list[str]:
    """Return why serving_image_digest cannot be an image's digest; [] for a valid or empty one."""
    if not digest or _DIGEST.fullmatch(digest):
        return []
    return [
        f"serving_image_digest is {shown(digest)}, but must be sha256: and 64 hexadecimal digits in lower case. "
        f"{_PRINTS}."
    ]


def repository_sentences(fetches: Iterable[Mapping[str, Any]], kinds: Collection[str]) -> list[str]:
    """Return a sentence for each repository without a commit that weights may be fetched from.

    ``fetches``: missing weights (directory, repositories by kind of hub). ``kinds``: the hubs in model_weights_sources.
    """
    sentences = {
        (kind, repository): f"{repository} on {hub_kind(kind).title} is not pinned: "
        f"{directory} would be what its branch holds on the day. Name a commit "
        f"(repositories.{kind}.revision in catalog/models), or leave sources of the kind {kind} out of "
        "model_weights_sources."
        for kind, repository, directory in _moving(fetches, kinds)
    }
    return list(sentences.values())


def _moving(fetches: Iterable[Mapping[str, Any]], kinds: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield hub kind, repository and directory of repositories without a commit."""
    for item in fetches:
        for kind, source in item["repositories"].items():
            if kind in kinds and not _COMMIT.fullmatch(str(source.get("revision") or "")):
                yield kind, str(source["repository"]), str(item["directory"])


def measurement_refusals(fetches: Iterable[Mapping[str, Any]], kinds: Collection[str]) -> list[str]:
    """Return why measurements without pins may never be fetched: they are pickles that a server executes."""
    measured = (item for item in fetches if item["measured_cards"])
    repositories = dict.fromkeys(repository for _, repository, _ in _moving(measured, kinds))
    return [f"{measurements_not_pinned(repository)}." for repository in repositories]


def refused(sentences: Sequence[str]) -> list[str]:
    """Return the sentences as refusals, with the variable that requires pins."""
    return [f"{sentence} gaudi_require_pins is true, so that nothing unpinned is taken." for sentence in sentences]


def digest_lines(image: str, digest: str | None, release: str) -> list[str]:
    """Return lines to add to an inventory to pin an image; ``digest``: that of the image that was pulled."""
    if "@" in image:
        return []
    if digest is None:
        return [f"{image} has no digest of a registry, since it was built or loaded on this node: push it to one."]
    return [
        f"{image} is not pinned. To have this image on every node, write into the inventory:",
        f"serving_image_digest: {digest}",
        f"or into catalog/releases/{release}.yml, which restarts the release's instances once:",
        "image:",
        f"  digest: {digest}",
    ]
