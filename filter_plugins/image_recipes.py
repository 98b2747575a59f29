"""Say how the images of plans are built."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.errors import AnsibleFilterError
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.catalogue.entries import ReleaseEntry
from ansible.module_utils.gaudi.image.addresses import apt_key, apt_sources, asked, git_config, pip_config
from ansible.module_utils.gaudi.image.dockerfile import constraints, dockerfile, lock, steps
from ansible.module_utils.gaudi.image.inside import expected
from ansible.module_utils.gaudi.image.recipe import ImageSettings, recipe

from filter_plugins.refusals import refusals


def image_recipes(
    plans: Sequence[Mapping[str, Any]], release: Mapping[str, Any], settings: Mapping[str, Any], registry: str = ""
) -> list[dict[str, Any]]:
    """One recipe for each image of the plans; without plans, for the image with the parts that the site asks for.

    release: the content of its file. settings: what the site sets for its images. registry: where the base comes from.
    """
    needs = {tuple(plan["requires"].get("image", ())) for plan in plans if "requires" in plan} or {()}
    try:
        entry = ReleaseEntry.from_mapping(release)
        built = ImageSettings.from_mapping({**settings, "ref": None, "build": True})
        recipes = {made.tag: made for made in (recipe(entry, built, each, registry or None) for each in sorted(needs))}
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None
    return [
        {
            "reference": made.reference,
            "tag": made.tag,
            "release": made.release,
            "base": made.base_reference,
            "base_name": made.base,
            "base_digest": made.base_digest,
            "versions": dict(expected(entry.image["tag"], made.build.quantization)),
            "dockerfile": dockerfile(made),
            "constraints": constraints(made),
            "lock": lock(made),
            "titles": [step.title for step in steps(made)],
            "parts": list(made.parts),
        }
        for made in recipes.values()
    ]


def image_refusals(
    plans: Sequence[Mapping[str, Any]], release: Mapping[str, Any], settings: Mapping[str, Any], registry: str = ""
) -> list[str]:
    """Why no image can be built as the site asks; nothing where one can. Arguments as for image_recipes.

    Without a release the plans say why there is none.
    """
    if not release:
        return refusals(plans)
    try:
        image_recipes([plan for plan in plans if "refused" not in plan], release, settings, registry)
    except AnsibleFilterError as refusal:
        return [str(refusal)]
    return []


def image_addresses(said: Mapping[str, Any], folder: str) -> list[dict[str, str]]:
    """The files that a build reads its addresses from, as the module node_files takes them.

    said: git_mirrors, git_accounts, python_indexes, apt_sources and apt_key of the site. folder: where the files lie.
    """
    try:
        key = apt_key(str(said["apt_key"]))
        files = {
            "apt": apt_sources(str(said["apt_sources"]), key),
            "apt_key": key,
            "git": git_config(said["git_mirrors"], said["git_accounts"]),
            "pip": pip_config(said["python_indexes"]),
        }
    except Refusal as refusal:
        raise AnsibleFilterError(refusal.message_with_id) from None
    return [
        {"path": f"{folder}/{name}", **({"secret": content, "mode": "0600"} if content else {"state": "absent"})}
        for name, content in files.items()
    ]


def image_instances(plans: Sequence[Mapping[str, Any]], image: str) -> dict[str, Any]:
    """What an image is held against: parts and argument vector of each instance that is to run in it."""
    return {
        plan["instance"]: {"parts": list(plan["requires"]["image"]), "arguments": list(plan["arguments"])}
        for plan in plans
        if plan.get("image") == image and "image" in plan.get("requires", {})
    }


def image_versions(release: Mapping[str, Any]) -> dict[str, str]:
    """The vendor's distributions in an image of a release, with their versions; nothing for an unknown release."""
    entry = ReleaseEntry.from_mapping(release) if release else None
    return expected(entry.image["tag"], entry.build.quantization) if entry and entry.build else {}


def hosts_in(said: Mapping[str, Any]) -> dict[str, str]:
    """The hosts in addresses, wherever they stand in the values of options, each with the options that name it."""
    return dict(asked(said))


class FilterModule:
    """What Ansible finds here."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {
            "image_recipes": image_recipes,
            "image_refusals": image_refusals,
            "image_addresses": image_addresses,
            "hosts_in": hosts_in,
            "image_instances": image_instances,
            "image_versions": image_versions,
        }
