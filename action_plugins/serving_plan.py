"""Plan requests on the controller: with the catalogue that lies here, and what the node reports of itself.

The node is asked with the module ``node_report``, in one call as a rule; for a topology that was given it is not asked.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.json import Direction, get_module_encoder
from ansible.plugins.action import ActionBase

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.checks import HUB_ID
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.cards import given
from ansible.module_utils.gaudi.cards.reservations import holders
from ansible.module_utils.gaudi.catalogue.entries import CardType, ReleaseEntry
from ansible.module_utils.gaudi.image.recipe import ImageSettings, base_reference
from ansible.module_utils.gaudi.node.report.files import read_file
from ansible.module_utils.gaudi.pages.page import page as describe
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from ansible.module_utils.gaudi.planning.reported import (
    Plans,
    Questions,
    ReportedNode,
    first_questions,
    plan_reported,
    with_others,
)
from ansible.module_utils.gaudi.preflight import pins
from ansible.module_utils.gaudi.request.options import name_of
from ansible.module_utils.gaudi.serving import keys
from ansible.module_utils.gaudi.weights import pin_file, source_plan
from ansible.module_utils.gaudi.weights.how_to_get import by_hub_id, how_to_get
from ansible.module_utils.gaudi.weights.hub_kinds import DEFAULT

from plugin_utils import catalogue_files, releases, role_options
from plugin_utils.catalogue_files import cut, load_checked, resolve
from plugin_utils.yaml_files import load_yaml, parse

# Where a node's models are if nobody says.
WEIGHTS_ROOT = "/data/models"

# Keys that Ansible itself adds to a module's result, such as the interpreter that it found.
PASSED_ON = ("ansible_facts", "warnings", "deprecations", "invocation")
ENCODER = get_module_encoder("legacy", Direction.CONTROLLER_TO_MODULE)


class ReportFailure(Exception):
    """The node did not report: the result of the module that was to read it."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__(result)
        self.result = result


def plain(value: object) -> Any:
    """Return a value in JSON's own types: Ansible's texts carry tags, and a plan is compared with one that was read."""
    return json.loads(json.dumps(value, cls=ENCODER))


def request_list(value: object) -> list[Any]:
    """The requests as a list; ``-e plan_requests=[...]`` arrives as text.

    Raises Refusal: neither a list nor text that reads as one.
    """
    if isinstance(value, str):
        try:
            value = parse(value, "requests")
        except Refusal as error:
            raise Refusal(
                "not_yaml",
                f"requests is text that is neither JSON nor YAML: {cut(value)}. "
                f"""On the command line blanks end a value; write -e '{{"plan_requests": [...]}}'.""",
            ) from error
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list):
        raise Refusal(
            "not_a_list", f"requests must be a list of mappings such as [{{model: qwen3-8b}}], not {cut(value)}."
        )
    return value


def read_topology(name: str) -> dict[str, Any]:
    """A topology from a file: the result of gaudi_topology_info, its topology alone, or what hl-smi printed.

    Raises Refusal: no such file, or something else in it; with the file, the key and what would be right.
    """
    shown = f"The topology file {cut(name, 200)[1:-1]}"
    if not name or "\0" in name:
        raise Refusal(
            "not_a_file", "topology_file is not the name of a file. Name one, or leave it out to read the node."
        )
    path = Path(name)
    with contextlib.suppress(RuntimeError):  # ~somebody, who is not there
        path = path.expanduser()
    return given_topology(load_yaml(path, shown), shown)


def given_topology(content: object, shown: str) -> dict[str, Any]:
    """The topology document of what was given; ``shown`` is what messages call it.

    Raises Refusal: it is no topology; with the key and what would be right.
    """
    try:
        document: dict[str, Any] = given.given_topology(content)
    except Refusal as refusal:
        raise refusal.about(shown) from refusal
    return document


def folder(entry: Mapping[str, Any], root: str) -> str:
    """The folder of a node in which an entry's weights lie."""
    return f"{root.rstrip('/')}/{entry['directory']}"


def others_of(catalogue: Catalogue) -> Callable[[], list[ReleaseEntry]]:
    """Return what reads the releases beside the one of a catalogue."""
    return lambda: [
        ReleaseEntry.from_mapping(load_checked("release", resolve("releases", "release", name)))
        for name in releases.names()
        if name != catalogue.release.name
    ]


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """Load, check, have the node report, plan, put the answers in the order of the requests."""

    TRANSFERS_FILES = False
    SPEC: ClassVar[dict[str, dict[str, Any]]] = {
        "requests": {"type": "raw", "required": True},
        "release": {"type": "str", "required": True},
        "weights_root": {"type": "str"},
        "image_registry": {"type": "str"},
        "image": {"type": "dict", "default": {}},
        "host_nics": {"type": "bool", "default": False},
        "foresee": {"type": "bool", "default": False},
        "topology": {"type": "dict"},
        "topology_file": {"type": "str"},
        "on_refusal": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
        "page": {"type": "bool", "default": False},
    }

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Plan all requests; with C(page) also render them for people."""
        super().run(tmp, task_vars)
        _, given_options = self.validate_argument_spec(self.SPEC, mutually_exclusive=[("topology", "topology_file")])
        options = plain(given_options)
        try:
            result, models = self._plan(options, task_vars or {})
        except ReportFailure as failure:
            return failure.result
        except Refusal as refusal:
            # The sentence says it all; with its cause Ansible would print it twice.
            raise AnsibleActionFail(str(refusal), result={"refused_id": refusal.id}) from None
        if options["page"] and not result.get("failed"):
            notes = {name: entry.get("notes", []) for name, entry in models.items()}
            names = [name_of(request) for request in request_list(options["requests"])]
            page = describe(result["plans"], result["topology"], result.get("reserved"), notes, names, result["pins"])
            result["page"] = str(page)
        return result

    def _plan(self, options: dict[str, Any], task_vars: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the task answers, and the catalogue entries of the models it is about."""
        requests = request_list(options["requests"])
        topology = None
        if options["topology_file"] is not None:
            topology = read_topology(options["topology_file"])
        elif options["topology"] is not None:
            topology = given_topology(options["topology"], "topology")
        requests, broken = self._configs(requests)
        requests, open_ones = self._guarded(requests, task_vars)
        root = str(options["weights_root"] or WEIGHTS_ROOT)
        commits = self._commits(task_vars)
        requests, of_hubs = self._from_hubs(requests, root, commits)
        models, refused = self._models(requests, commits)
        refused.update(self._in_one_folder(of_hubs, models, root))
        hubs = {folder(entry, root): entry for entry in of_hubs.values()}
        refused.update(broken)
        refused.update(open_ones)
        report = options["on_refusal"] == "report"
        try:
            release = load_checked("release", resolve("releases", "release", options["release"]))
            cards = load_checked("cards", catalogue_files.CATALOG / "cards.yml")
        except Refusal as refusal:
            if not (report and requests):
                raise
            # Nothing can be planned, so the node is not asked; if a report was requested, every request is in it.
            plans = [self._refusal(request, refusal) for request in requests]
            return {
                "changed": False,
                "plans": plans,
                "topology": topology,
                "how_to_get": {},
                "source_plans": {},
                "pins": [[] for _ in plans],
                "image_base": "",
                "release": {},
            }, models
        if refused and not report:
            sentences = dict.fromkeys(str(refusal) for refusal in refused.values())
            raise Refusal(next(iter(refused.values())).id, " ".join(sentences))
        left = [request for position, request in enumerate(requests) if position not in refused]
        beside = {other: load_checked("model", resolve("models", "model", other)) for other in self._beside(models)}
        catalogue = Catalogue.from_mappings(release, plain({**beside, **models}), cards)
        make = partial(
            plan_all,
            left,
            weights_root=root,
            image_registry=options["image_registry"] or None,
            image=options["image"],
            host_nics=options["host_nics"],
        )
        if topology is not None:
            result = self._given(make, catalogue, topology)
        else:
            questions = first_questions(left, catalogue.models, root)
            result = self._read(make, catalogue, questions, options["foresee"], task_vars)
        if not report and any("refused" in plan for plan in result["plans"]):
            return self._failed(result), models
        result["release"] = release
        answers = iter(result["plans"])
        result["plans"] = [
            self._refusal(request, refused[position]) if position in refused else next(answers)
            for position, request in enumerate(requests)
        ]
        entries = [*models.values(), *hubs.values()]
        sources = [
            [] if "refused" in plan else source_plan.source_plans(plan, entries, root) for plan in result["plans"]
        ]
        result["how_to_get"] = self._how_to_get(result["plans"], {**models, **hubs}, root)
        result["source_plans"] = {
            plan["instance"]: source
            for plan, source in zip(result["plans"], sources, strict=True)
            if plan["instance"] is not None and "refused" not in plan
        }
        result["image_base"] = self._base(catalogue.release, options)
        result["pins"] = self._pins(
            result["plans"], sources, result["image_base"], bool(options["image"].get("push")), task_vars
        )
        return result, models

    @staticmethod
    def _failed(result: dict[str, Any]) -> dict[str, Any]:
        """The result of a task that a refused request fails."""
        refused = [plan for plan in result["plans"] if "refused" in plan]
        sentences = " ".join(Refusal.from_keys(plan).message_with_id for plan in refused)
        return {**result, "failed": True, "msg": sentences, "refused_id": refused[0]["refused_id"]}

    @staticmethod
    def _given(make: Callable[..., Plans], catalogue: Catalogue, topology: dict[str, Any]) -> dict[str, Any]:
        """The plans for a topology that was given, which says nothing about reservations, weights and starts."""
        # A person wrote a file of buckets for the server, and has it on the controller as well.
        plans = with_others(partial(make, topology=topology, read_file=read_file), catalogue, others_of(catalogue))
        return {"changed": False, "plans": plain(plans), "topology": topology, "reserved": {}}

    def _read(
        self,
        make: Callable[..., Plans],
        catalogue: Catalogue,
        questions: Questions,
        foresee: bool,
        task_vars: dict[str, Any],
    ) -> dict[str, Any]:
        """The plans for what the node reports. Raises ReportFailure, or Refusal for a report of another form."""
        names = {"foresee": CardType.names_by_pci_id(catalogue.cards)} if foresee else {}
        passed_on: dict[str, Any] = {}

        def ask(asked: Questions) -> object:
            answer: dict[str, Any] = self._execute_module(
                "node_report", {**asked.as_options(), **names}, task_vars=self._interpreter(task_vars)
            )
            if answer.get("failed"):
                raise ReportFailure(answer)
            passed_on.update({key: answer[key] for key in PASSED_ON if key in answer})
            return answer.get("report")

        def plan(node: ReportedNode) -> Plans:
            with_node = partial(
                make,
                topology=node.topology,
                reservations=node.reservations,
                last_starts=node.last_starts,
                read_weights=node.read_weights,
                read_file=node.read_file,
            )
            return with_others(with_node, catalogue, others_of(catalogue))

        plans, node = plan_reported(plan, ask, questions)
        if node.damage:
            self._display.warning(f"{node.damage}. The next reservation writes it again.")
        reserved = {str(module_id): name for module_id, name in holders(node.reservations).items()}
        return {**passed_on, "changed": False, "plans": plain(plans), "topology": node.topology, "reserved": reserved}

    @staticmethod
    def _how_to_get(plans: list[dict[str, Any]], models: dict[str, Any], root: str) -> dict[str, str]:
        """How to get the weights of each instance. ``models``: entries by name, those of hub ids by their folder."""
        sentences: dict[str, str] = {}
        for plan in plans:
            instance = plan["instance"]
            if instance is None or "refused" in plan:
                continue
            path = plan["requires"]["weights_path"]
            if plan["model"]:
                sentences[instance] = how_to_get(models[plan["model"]], path)
            elif path in models:
                sentences[instance] = by_hub_id(models[path]["name"], root)
        return sentences

    def _commits(self, task_vars: dict[str, Any]) -> dict[str, str]:
        """The commits of repositories that the site accepts."""
        accepted = role_options.HostOptions(self._loader, task_vars).read(pin_file.OF_SITE).value
        return dict(pin_file.commits(accepted or {}))

    @staticmethod
    def _from_hubs(
        requests: list[Any], root: str, commits: Mapping[str, str]
    ) -> tuple[list[Any], dict[int, dict[str, Any]]]:
        """The requests, with the folder in place of a hub's id; and an entry for each such folder, by position.

        Clients may ask for the id, as they would of a server that had fetched it itself.
        """
        found: list[Any] = []
        entries: dict[int, dict[str, Any]] = {}
        for position, request in enumerate(requests):
            name = request.get("weights") if isinstance(request, Mapping) else None
            if not isinstance(name, str) or not HUB_ID.fullmatch(name):
                found.append(request)
                continue
            repository = {"repository": name, "revision": commits.get(name, "main")}
            entry = {"name": name, "directory": name.rpartition("/")[2], "repositories": {DEFAULT: repository}}
            entries[position] = entry
            served = request.get("served_model_name") or name
            found.append({**request, "weights": folder(entry, root), "served_model_name": served})
        return found, entries

    @staticmethod
    def _in_one_folder(
        of_hubs: Mapping[int, dict[str, Any]], models: Mapping[str, Any], root: str
    ) -> dict[int, Refusal]:
        """By position, why a hub's id is refused: another model of this run has the same folder."""
        refused: dict[int, Refusal] = {}
        for position, entry in of_hubs.items():
            others = [*models.values(), *(each for place, each in of_hubs.items() if place != position)]
            other = source_plan.taken_from(entry, others)
            if other:
                refused[position] = Refusal(
                    "folder_of_two_models",
                    f"weights is {entry['name']}, whose folder {folder(entry, root)} is that of {other} as well. "
                    f"Bring one of both to a folder of another name (hf download {entry['name']} --local-dir FOLDER), "
                    f"and name its path as weights.",
                )
        return refused

    @staticmethod
    def _base(release: ReleaseEntry, options: Mapping[str, Any]) -> str:
        """The base image of images that are built; "" where none is, or where settings refuse the plans."""
        try:
            settings = ImageSettings.from_mapping(options["image"])
        except Refusal:
            return ""
        return base_reference(release, settings, options["image_registry"] or None) if settings.build else ""

    def _pins(
        self, plans: list[dict[str, Any]], sources: list[Any], base: str, pushed: bool, task_vars: dict[str, Any]
    ) -> list[list[str]]:
        """What pins the weights, measurements and image of each plan, and what a run of site.yml would refuse."""
        host = role_options.HostOptions(self._loader, task_vars)
        # The preflight reports options that cannot be read.
        hubs = host.read("model_weights_sources").value
        kinds = [hub.get("kind", DEFAULT) for hub in hubs or [] if isinstance(hub, Mapping)]
        digest = str(host.read("serving_image_digest").value or "")
        return [
            []
            if "refused" in plan
            else [
                *pins.lines(plan, known, kinds, digest, base=base, pushed=pushed),
                *(f"site.yml refuses this plan: {refusal}" for refusal in pins.code_refusals(plan, known)),
            ]
            for plan, known in zip(plans, sources, strict=True)
        ]

    @staticmethod
    def _configs(requests: list[Any]) -> tuple[list[Any], dict[int, Refusal]]:
        """The requests, a config.json given as text read, and a refusal for each that is no JSON."""
        read: list[Any] = []
        broken: dict[int, Refusal] = {}
        for position, request in enumerate(requests):
            config = request.get("model_config") if isinstance(request, Mapping) else None
            if not isinstance(config, str):
                read.append(request)
                continue
            try:
                read.append({**request, "model_config": json.loads(config)})
            except (ValueError, RecursionError) as error:
                read.append(request)
                broken[position] = Refusal(
                    "config_unreadable",
                    f"The config.json of {cut(request.get('weights'))} is not valid JSON: {error}. "
                    "Get the model's files again, or correct it.",
                )
        return read, broken

    def _guarded(self, requests: list[Any], task_vars: dict[str, Any]) -> tuple[list[Any], dict[int, Refusal]]:
        """The requests, each with a guard where the host's keys ask for one; and, by position, why one is refused.

        The keys are read here, so that no caller can forget them: a server whose keys were overlooked would be open.
        """
        read = role_options.HostOptions(self._loader, task_vars).read("vllm_service_api_keys")
        found: list[Any] = []
        refused: dict[int, Refusal] = {}
        for position, request in enumerate(requests):
            found.append(request)
            try:
                if read.why_not is not None:
                    raise Refusal(
                        "keys_unreadable",
                        "vllm_service_api_keys cannot be read (a variable or a vault is missing), so that nobody can "
                        "tell whether the server is to ask for keys.",
                    )
                found[position] = keys.with_guard(request, read.value)
            except Refusal as refusal:
                refused[position] = refusal
        return found, refused

    @staticmethod
    def _models(requests: list[Any], commits: Mapping[str, str]) -> tuple[dict[str, Any], dict[int, Refusal]]:
        """The catalogue entries the requests name, and a refusal for each request whose entry cannot be had."""
        models: dict[str, Any] = {}
        refused: dict[int, Refusal] = {}
        for position, request in enumerate(requests):
            if not isinstance(request, Mapping):
                refused[position] = Refusal(
                    "not_a_mapping", f"A request must be a mapping such as {{model: qwen3-8b}}, not {cut(request)}."
                )
                continue
            beside = request.get("share_card_with")
            for name in [request.get("model"), *(beside if isinstance(beside, list) else [])]:
                if name is None or (isinstance(name, str) and name in models):
                    continue
                try:
                    models[name] = pin_file.with_commits(
                        load_checked("model", resolve("models", "model", name)), commits
                    )
                except Refusal as refusal:
                    refused[position] = refusal
        return models, refused

    @staticmethod
    def _beside(models: Mapping[str, Any]) -> set[str]:
        """The models that may be other weights of some: a refusal names those that are served."""
        return {other for name in models for other in catalogue_files.of_same_name(name)}

    @staticmethod
    def _refusal(request: object, refusal: Refusal) -> dict[str, Any]:
        """What stands in the place of a plan that is refused."""
        name = request.get("instance") if isinstance(request, Mapping) else None
        return {"instance": name if isinstance(name, str) else None, **refusal.as_keys()}

    def _interpreter(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """On the controller itself the playbook's own interpreter plans: no other is known to have what it needs."""
        if self._connection.transport != "local":
            return task_vars
        return {**task_vars, "ansible_python_interpreter": sys.executable}
