"""Instructions for getting a model's weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import source_plan
from .hub_kinds import hub_kind


def _commands(repositories: Mapping[str, Any], target: str) -> str:
    """Return the commands that download a repository by hand, one for each hub."""
    commands = []
    for hub, source in repositories.items():
        revision = f" --revision {source['revision']}" if "revision" in source else ""
        command = hub_kind(hub).command
        commands.append(command.format(repository=source["repository"], revision=revision, target=target))
    return ", or ".join(commands)


def how_to_get(entry: Mapping[str, Any], directory: str) -> str:
    """Say how to get a model's weights; ``directory``: where the plan expects them on the node."""
    root, _, name = directory.rpartition("/")
    # A card that takes the published weights is served from that folder.
    conversion = entry.get("conversion") if name == entry["directory"] else None
    target = f"{root}/{conversion['from_directory']}" if conversion else directory
    commands = _commands(entry["repositories"], target)
    if not commands:
        return f"They are published nowhere; catalog/models/{entry['name']}.yml says where they come from."
    fetch = f"ansible-playbook playbooks/fetch_weights.yml -e model={entry['name']}; by hand: "
    fetched = "Set gaudi_weights_fetch: true to have them brought in the same run, or get them with: "
    begin = fetched if source_plan.source_plan(entry, name) else "Get them with: "
    more = f" Then convert {target} to {directory} with playbooks/convert_weights.yml." if conversion else ""
    measured = entry.get("measurements")
    if measured:
        by_hand = _commands(measured["repositories"], f"{root}/{measured['directory']}")
        ours = f"playbooks/calibrate.yml -e model={entry['name']} makes them"
        more += f" Its measurement files: {by_hand}." if by_hand else f" Its measurement files: {ours}."
    return f"{begin}{fetch}{commands}.{more}"


def by_hub_id(name: str, root: str) -> str:
    """Say how to download weights that are named by a hub id; ``root``: the node's directory of models."""
    return (
        f"Set gaudi_weights_fetch: true to have {name} brought to {root}/{name.rpartition('/')[2]} in the same run, or "
        f"get it with: ansible-playbook playbooks/fetch_weights.yml -e repository={name}. A commit is named in "
        f"model_weights_commits; without one it is what the branch main holds when it is fetched."
    )
