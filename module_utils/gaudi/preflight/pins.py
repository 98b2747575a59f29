"""Find what is not pinned: the tag of an image, the branch of a repository, files that only a commit names.

Each is a sentence for a node's report: a finding, or with ``gaudi_require_pins`` a problem.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base.checks import shown
from ..base.command_line import hub_ids, runs_code, trusts_code
from ..base.printable import printable
from ..weights.hub_kinds import DEFAULT, hub_kind
from ..weights.pin_file import BY_COMMIT, UNPINNED, measurements_not_pinned, pinned_by, with_checksums
from ..weights.source_plan import served

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


def built_sentences(images: Iterable[str], base: str, *, pushed: bool) -> list[str]:
    """Return a sentence for what is not pinned of images that the site builds.

    ``images``: those of its plans. ``base``: their base image. ``pushed``: whether a node pushes them, and others pull.
    """
    named = sorted(set(images))
    found = [
        f"The image {image} is not pinned: it is built and pushed by one node (serving_image_push), and pulled by its "
        "tag, which can be moved; serving_image_digest does not apply to an image that is built. Once it is pushed, "
        f"write serving_image_ref: {image} and its digest as serving_image_digest into the inventory, in place of "
        f"serving_image_build and serving_image_push; {_PRINTS}. Or leave serving_image_push out: then each node "
        "builds it, or copies it from the node that built it (serving_image_share)."
        for image in named
        if pushed
    ]
    if named and base and "@" not in base:
        found.append(
            f"The base image {base} of images that are built is not pinned: its tag can be moved, and then they are "
            f"built on another one. Write its digest into the inventory: serving_image_base: {base}@sha256:... (docker "
            f"buildx imagetools inspect {base} prints it; playbooks/image.yml, that of the base that images here were "
            "built on). That changes the tag of the images, so they are built again."
        )
    return found


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
    sentences = {}
    for kind, source, directory in _sources(fetches, kinds):
        if pinned_by(source) == UNPINNED:
            own = ", or -e revision=COMMIT beside -e repository" if kind == DEFAULT else ""
            sentences[kind, source["repository"]] = (
                f"{source['repository']} on {hub_kind(kind).title} is not pinned: {directory} would be what its branch "
                f"holds on the day. Name a commit (repositories.{kind}.revision in catalog/models{own}), or leave "
                f"sources of the kind {kind} out of model_weights_sources."
            )
    return list(sentences.values())


def checksum_sentences(fetches: Iterable[Mapping[str, Any]], kinds: Collection[str]) -> list[str]:
    """Return a sentence for each repository that only a commit pins; arguments as for ``repository_sentences``."""
    sentences = {}
    for kind, source, directory in _sources(fetches, kinds):
        if pinned_by(source) == BY_COMMIT:
            sentences[kind, source["repository"]] = (
                f"{source['repository']} on {hub_kind(kind).title} is {BY_COMMIT}, and a mirror may send other files "
                f"of {directory} under that commit. {_pin(kind)}, or leave sources of the kind {kind} out of "
                "model_weights_sources."
            )
    return list(sentences.values())


def _pin(kind: str, model: str = "NAME") -> str:
    """Say how the checksums of a repository are pinned."""
    if kind != DEFAULT:
        return f"Write the checksums of its files into catalog/models/{model}.pins.yaml (docs/weights.md)"
    return f"Pin the checksums of its files (ansible-playbook playbooks/pin.yml -e model={model} -e write=true)"


def _sources(
    fetches: Iterable[Mapping[str, Any]], kinds: Collection[str]
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield hub kind, repository and directory of everything that these kinds of hub may be asked for."""
    for item in fetches:
        for kind, source in item["repositories"].items():
            if kind in kinds:
                yield kind, source, str(item["directory"])


def measurement_refusals(fetches: Iterable[Mapping[str, Any]], kinds: Collection[str]) -> list[str]:
    """Return why measurements without pins may never be fetched: they are pickles that a server executes."""
    measured = (item for item in fetches if item["measured_cards"])
    moving = (source["repository"] for _, source, _ in _sources(measured, kinds) if pinned_by(source) == UNPINNED)
    return [f"{measurements_not_pinned(repository)}." for repository in dict.fromkeys(moving)]


def code_refusal(name: str, repositories: Mapping[str, Mapping[str, Any]], model: str) -> str:
    """Return why code that comes with weights may not run: no checksum says which code that is; "" if one does.

    ``name``: what runs it. ``repositories``: where the weights are from, by kind of hub. ``model``: their entry.
    """
    if not repositories or with_checksums(repositories):
        return ""
    kind, source = next(iter(repositories.items()))
    return (
        f"{name} runs code that comes with its weights, and {source['repository']} is {pinned_by(source)}: the hub, or "
        f"a mirror of it, decides what that code is. Checksums of its files are required. Read the code. "
        f"{_pin(kind, model)}, and run this again (docs/weights.md)."
    )


def code_refusals(
    plan: Mapping[str, Any], sources: Iterable[Mapping[str, Any]], *, installed: bool = False
) -> list[str]:
    """Return why a plan's server may not run the code of its weights: a sentence for each folder, and for hub ids.

    ``sources``: the plan's source plans. ``installed``: whether the node has an instance of that name already.
    """
    refusals = []
    name = str(plan["instance"] or plan["model"])
    for source in sources if runs_code(plan) else ():
        own = str(plan["requires"]["weights_path"]).rpartition("/")[2] == served(source)
        model = str(plan["model"]) if own and plan.get("model") else "NAME"
        if not source["fetch"]["measured_cards"]:
            refusals.append(code_refusal(name, source["fetch"]["repositories"], model))
    fetched = hub_sentences([plan]) if trusts_code(plan) else []
    refusals += [f"{name} may run code (trust_remote_code). {said}" for said in fetched]
    kept = " Until then the instance is not changed." if installed else ""
    return [f"{refusal}{kept}" for refusal in refusals if refusal]


def hub_sentences(plans: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each plan whose server fetches weights, tokenizers or adapters by itself.

    No record and no checksum covers these files, and another process of the server may fetch other ones later.
    """
    return [
        f"{plan['instance'] or plan['model']}: the server itself fetches {_some(found)}, which no checksum pins. "
        "Weights that the site fetches are required. Leave out weights and name a model of the catalogue (docs/"
        "add-a-model.md), pin its files (playbooks/pin.yml), and let gaudi_weights_fetch or "
        "playbooks/fetch_weights.yml fetch it; or name an absolute path on the node."
        for plan in plans
        if (found := hub_ids(plan))
    ]


def named_sentences(named: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a sentence for each instance whose weights name models of a hub; ``named``: these, by instance."""
    return [
        f"{instance}: config.json of the weights names another model ({_some(models)}), which no checksum pins. "
        "Weights that name no model of a hub are required. Serve that other model itself, or other weights."
        for instance, models in named.items()
        if models
    ]


def _some(names: Sequence[str]) -> str:
    """Return names for a sentence, five at most."""
    return printable(", ".join(names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def code_differs(instance: str, folder: str, names: Collection[str]) -> str:
    """Return the refusal of weights on the node whose code or configuration differs from the pins."""
    return f"{instance} would run code of {folder}, where {_differing(names)}"


def files_differ(instance: str, folder: str, names: Collection[str]) -> str:
    """Return the refusal of weights on the node that differ from the pins, where pins are required."""
    return f"{instance} would read {folder}, where {_differing(names)} gaudi_require_pins is true."


def _differing(names: Collection[str]) -> str:
    """Return which files differ, and what to do, from the middle of a sentence."""
    return (
        f"files differ from their pins, or have none: {_some(sorted(names))}. Every file needs a pin, except "
        "safetensors, notes (README, LICENSE, .md) and pictures. Compare them with those of the hub. Then pin what is "
        "right (playbooks/pin.yml), move a file of your own to another folder, or move the whole folder away and fetch "
        "it again."
    )


def refused(sentences: Sequence[str]) -> list[str]:
    """Return the sentences as refusals, with the variable that requires pins."""
    return [f"{sentence} gaudi_require_pins is true, so that nothing unpinned is taken." for sentence in sentences]


def lines(
    plan: Mapping[str, Any],
    sources: Iterable[Mapping[str, Any]],
    kinds: Collection[str],
    digest: str,
    *,
    base: str,
    pushed: bool,
) -> list[str]:
    """Return what pins the weights, measurements and image of a plan, a line each.

    ``sources``: the plan's source plans. ``kinds``: the hubs in model_weights_sources. ``digest``:
    serving_image_digest of the site. ``base``: the base image if the image is built, else "". ``pushed``: whether a
    node pushes what it built, and others pull it.
    """
    made: dict[str, None] = {}
    for source in sources:
        what = "measurements" if source["fetch"]["measured_cards"] else "weights"
        levels: dict[str, list[str]] = {}
        for kind, said, _ in _sources([source["fetch"]], kinds):
            levels.setdefault(pinned_by(said), []).append(hub_kind(kind).title)
        named = [f"{level} ({', '.join(hubs)})" if len(levels) > 1 else level for level, hubs in levels.items()]
        made[f"{what} {', '.join(named) or 'on no hub of model_weights_sources'}"] = None
    image = "pinned by digest" if digest or "@" in plan["image"] else UNPINNED
    if base:
        of_base = "pinned by digest" if "@" in base else "taken by its tag"
        image = "built by one node, and pulled by its tag" if pushed else f"built on a base {of_base}"
    return [*(made or ["weights of the site, not pinned"]), f"image {image}"]


def digest_lines(image: str, digest: str | None, release: str, *, built: bool) -> list[str]:
    """Return lines to add to an inventory to pin an image; ``digest``: that of the image that was pulled or pushed.

    ``built``: whether the site builds it, and pushes it.
    """
    if "@" in image:
        return []
    if digest is None:
        return [f"{image} has no digest of a registry, since it was built or loaded on this node: push it to one."]
    if built:
        return [
            f"{image} is not pinned. To have this image on every node, write into the inventory, in place of "
            "serving_image_build and serving_image_push:",
            f"serving_image_ref: {image}",
            f"serving_image_digest: {digest}",
        ]
    return [
        f"{image} is not pinned. To have this image on every node, write into the inventory:",
        f"serving_image_digest: {digest}",
        f"or into catalog/releases/{release}.yml, which restarts the release's instances once:",
        "image:",
        f"  digest: {digest}",
    ]
