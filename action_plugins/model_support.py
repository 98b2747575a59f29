"""On which releases, and on how many of which cards, a model runs; planned on the controller, no node is asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.cards import given
from ansible.module_utils.gaudi.catalogue.entries import CardType, ModelEntry, ReleaseEntry
from ansible.module_utils.gaudi.model.remote_code import CONFIG_LIMIT
from ansible.module_utils.gaudi.planning import support
from ansible.module_utils.gaudi.request.node import Node

from plugin_utils import catalogue_files, releases
from plugin_utils.catalogue_files import cut, load_checked, resolve
from plugin_utils.yaml_files import load_yaml

ARGUMENT_SPEC: dict[str, Any] = {
    "model": {"type": "str", "default": ""},
    "model_config": {"type": "raw", "default": ""},
    "topology_file": {"type": "str", "default": ""},
}
# The machines that are planned for where no topology is given: one for each type of cards in use.
MACHINES = brain.ROOT / "docs" / "examples" / "topologies"
DESCRIBED = ("hl-225-two-sockets", "hl-288e-mixed-slots", "hl-325l-two-sockets", "hl-338-two-quads")


def config_of(value: object) -> Mapping[str, object]:
    """The config.json that an option names or holds. Raises Refusal for one that cannot be read."""
    if isinstance(value, Mapping):
        return value
    path = Path.cwd() / Path(str(value)).expanduser()
    try:
        content = path.read_bytes() if path.is_file() and path.stat().st_size <= CONFIG_LIMIT else b""
        config = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal(
            "config_unreadable",
            f"model_config is {cut(value)}, which is no file with a config.json of at most {CONFIG_LIMIT >> 20} MiB "
            f"({type(error).__name__}). Name the config.json of the model.",
        ) from error
    if not isinstance(config, dict):
        raise Refusal("config_unreadable", f"model_config is {cut(value)}, which holds no mapping. Name a config.json.")
    return config


def request_of(model: str, config: object) -> dict[str, Any]:
    """The request to plan. Raises Refusal where neither or both of the two are given."""
    if bool(model) == bool(config):
        raise Refusal(
            "no_model_to_compare",
            "every_release answers for one model. Give -e model_config=FILE (a config.json) or -e model=NAME (a name "
            "in catalog/models).",
        )
    if model:
        return {"model": model}
    named = Path(str(config)).parent.name if isinstance(config, str) else ""
    content = dict(config_of(config))
    if not content.keys() & {"architectures", "model_type"}:
        raise Refusal(
            "config_unreadable",
            f"model_config is {cut(config)}, which has neither architectures nor model_type: nothing says which model "
            "it is. Name the config.json beside the model's weights.",
        )
    return {"weights": f"/data/models/{named or 'model'}", "model_config": content}


def topologies(name: str) -> list[dict[str, Any]]:
    """The machines to plan for. Raises Refusal: no such file, or something else in it."""
    files = [Path(name).expanduser()] if name else [MACHINES / f"{each}.yml" for each in DESCRIBED]
    return [given.given_topology(load_yaml(file, f"The topology file {cut(str(file), 200)[1:-1]}")) for file in files]


def answers_for(model: str, config: object, topology_file: str) -> list[support.ReleaseSupport]:
    """What each release says of a model on each machine. Raises Refusal."""
    request = request_of(model, config)
    if model:
        resolve("models", "model", model)
    entries = {
        file.stem: ModelEntry.from_mapping(load_checked("model", file))
        for file in sorted((catalogue_files.CATALOG / "models").glob("*.yml"))
    }
    known = [
        ReleaseEntry.from_mapping(load_checked("release", resolve("releases", "release", name)))
        for name in releases.names()
    ]
    cards = CardType.table(load_checked("cards", catalogue_files.CATALOG / "cards.yml"))
    return [
        answer
        for topology in topologies(topology_file)
        for answer in support.every_release(request, known, entries, cards, Node(topology=topology))
    ]


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """Plan one model on every release."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answers, and the lines for people."""
        super().run(tmp, task_vars)
        _, options = self.validate_argument_spec(ARGUMENT_SPEC)
        try:
            answers = answers_for(options["model"], options["model_config"], options["topology_file"])
        except Refusal as refusal:
            raise AnsibleActionFail(str(refusal), result={"refused_id": refusal.id}) from None
        return {"changed": False, "answers": support.as_documents(answers), "page": support.as_text(answers)}
