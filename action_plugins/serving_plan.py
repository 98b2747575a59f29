"""Give the module serving_plan what lies on the controller: the catalogue files it needs, checked, in one call.

Modules run on nodes and cannot see ``catalog/``. This side loads the files the requests name (relative to its own
place), checks them against ``catalog/schemas``, turns every finding into a sentence with file and key, and calls the
module once for all requests. It decides nothing about the plans themselves.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plugin_utils import brain

brain.on_path()

from ansible.module_utils.gaudi.base.absent import absent
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.cards import given
from ansible.module_utils.gaudi.catalogue.extends import extended, file_of
from ansible.module_utils.gaudi.families.registry import FAMILIES
from ansible.module_utils.gaudi.pages.page import page as describe
from ansible.module_utils.gaudi.request.options import name_of
from ansible.module_utils.gaudi.serving import keys
from ansible.module_utils.gaudi.weights import source_plan
from ansible.module_utils.gaudi.weights.hub_kinds import hub_kind
from ansible.module_utils.gaudi.weights.pin_file import with_pins

from plugin_utils import role_options

ROOT = Path(__file__).resolve().parent.parent
CATALOG = ROOT / "catalog"

# A plan is small; a file of this size is a mistake, and would only be read to be refused. Bytes.
MAX_FILE = 1 << 20
# Where a node's models are if nobody says.
WEIGHTS_ROOT = "/data/models"
# Findings shown of one file: enough to repair it, few enough to read.
MAX_FINDINGS = 5
# Options that the module takes as they are.
HANDED_ON = ("weights_root", "image_registry", "image", "host_nics", "foresee")

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,95}\Z")


def _twice(key: object, mark: yaml.Mark | None = None) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, f"the key {key} stands there twice", mark)


class _Loader(yaml.SafeLoader):
    """Safe YAML without what surprises: the second of two equal keys, aliases that grow without end, dates.

    The loader in Python, because the one in C ends the whole process on deeply nested input.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's stubs leave it out
            problem = f"the alias *{event.anchor} is not read here, write its value out"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = str(getattr(key_node, "value", key_node))
            if key in seen:
                raise _twice(key, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, each of its keys written once."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise _twice(key)
        content[key] = value
    return content


def parse(text: str, shown: str) -> Any:
    """Value of a text in YAML or JSON; ``shown`` is what messages call it.

    Raises:
        Refusal: it is neither; with the line where known.
    """
    try:
        # What looks like JSON is read as such first: YAML knows neither its tabs nor all of its escapes.
        if text.lstrip()[:1] in ("{", "["):
            with contextlib.suppress(json.JSONDecodeError):
                return json.loads(text, object_pairs_hook=_once)
        return _Loader(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise Refusal("not_yaml", f"{shown}{line} is not valid YAML: {problem[:200]}.") from error


def load_yaml(path: Path, shown: str) -> Any:
    """Content of a YAML or JSON file; ``shown`` is what messages call it.

    Raises:
        Refusal: the file is missing, unreadable, too large, or not YAML; with the line where known.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            # A pipe or a device may have no end.
            raise Refusal(
                "not_a_file", f"{shown} is {'a directory' if path.is_dir() else 'a pipe or a device'}, not a file."
            )
        if found.st_size > MAX_FILE:
            raise Refusal(
                "file_too_large", f"{shown} has {found.st_size} bytes, the limit is {MAX_FILE}. Is it the right file?"
            )
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Refusal("file_unreadable", f"{shown} cannot be read: {error.strerror}.") from error
    except UnicodeError as error:
        raise Refusal("not_yaml", f"{shown} is not valid YAML: it is not text in UTF-8.") from error
    return parse(text, shown)


def close_matches(name: str, known: Iterable[str]) -> str:
    """ " Did you mean a or b?", or nothing where no name is near."""
    near = difflib.get_close_matches(name.lower(), sorted(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def _place(path: Iterable[str | int]) -> str:
    """``defaults.input_range[0]`` for a jsonschema path; empty for the whole file."""
    text = ""
    for part in path:
        # A key of several lines would break a sentence in two.
        name = str(part) if str(part).isprintable() else _cut(part)
        text += f"[{part}]" if isinstance(part, int) else f".{name}" if text else name
    return text


def _cut(value: object, limit: int = 60) -> str:
    text = json.dumps(value, ensure_ascii=True, default=str, skipkeys=True)
    return text if len(text) <= limit else f"{text[:limit]}..."


# How a rule of the schema reads after "must be".
_RULES = {
    "enum": lambda rule: f"one of {', '.join(str(item) for item in rule)}",
    "minimum": lambda rule: f"at least {rule}",
    "maximum": lambda rule: f"at most {rule}",
    "maxLength": lambda rule: f"at most {rule} characters long",
    "minItems": lambda rule: f"a list of at least {rule}",
    "maxItems": lambda rule: f"a list of at most {rule}",
    "type": lambda rule: f"of type {rule}",
}


def sentence(error: jsonschema.ValidationError) -> str:
    """One finding of jsonschema as a sentence: the key, what is there, what would be right."""
    where = _place(error.absolute_path) or "the file"
    value: Any = error.instance
    rule: Any = error.validator_value
    schema: Mapping[str, Any] = error.schema if isinstance(error.schema, Mapping) else {}
    if error.validator == "additionalProperties":
        known = sorted(schema["properties"])
        unknown = sorted(str(key) for key in value if key not in known)
        shown = ", ".join(_cut(key) for key in unknown[:3])
        return f"{where} has the unknown key {shown}.{close_matches(unknown[0], known)} Known: {', '.join(known)}."
    if error.validator == "required":
        # One finding a missing key; jsonschema puts its name first in the message.
        key = next(key for key in rule if key not in value and error.message.startswith(repr(key)))
        meaning = schema.get("properties", {}).get(key, {}).get("description")
        return f"{where} lacks the key {key}{f' ({meaning})' if meaning else ''}."
    if error.validator == "uniqueItems":
        return f"{where} names something twice."
    parts = [schema.get("description"), _RULES[str(error.validator)](rule) if error.validator in _RULES else None]
    right = ", ".join(part for part in parts if part) or "something else"
    return f"{where} is {_cut(value)}, but must be {right}."


@functools.cache
def _validator(kind: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((CATALOG / "schemas" / f"{kind}.schema.json").read_text(encoding="utf-8"))
    if kind == "release":
        # The families that there are; the code has the only list of them.
        schema["properties"]["rules"]["enum"] = list(FAMILIES)
    return jsonschema.Draft202012Validator(schema)


def errors(kind: str, document: object) -> list[jsonschema.ValidationError]:
    """Everything wrong with a document of a kind (model, release, cards), in the order of its keys."""
    found = _validator(kind).iter_errors(document)
    return sorted(found, key=lambda error: [str(part) for part in error.absolute_path])


def findings(kind: str, document: object) -> list[str]:
    """Sentences about everything wrong with a document of a kind; empty when it is right."""
    return list(dict.fromkeys(sentence(error) for error in errors(kind, document)))


def _key(error: jsonschema.ValidationError) -> list[str | int]:
    """The key that a finding is about: the unknown or the missing one itself, not the mapping around it."""
    path = list(error.absolute_path)
    if error.validator == "additionalProperties":
        known = error.schema["properties"] if isinstance(error.schema, Mapping) else {}
        unknown: Any = error.instance
        return [*path, sorted(str(key) for key in unknown if key not in known)[0]]
    if error.validator == "required":
        wanted: Any = error.validator_value
        return [*path, next(key for key in wanted if error.message.startswith(repr(key)))]
    return path


def _refuse(found: Mapping[str, list[str]]) -> None:
    """Refuse a document with the findings of each file.

    Raises:
        Refusal: there are some.
    """
    parts = []
    for file, sentences in found.items():
        more = f" (and {len(sentences) - MAX_FINDINGS} more)" if len(sentences) > MAX_FINDINGS else ""
        parts.append(f"{file}: {' '.join(sentences[:MAX_FINDINGS])}{more}")
    if parts:
        raise Refusal("wrong_catalogue_file", " ".join(parts))


def load_release(path: Path) -> dict[str, Any]:
    """A release with what it takes from those it extends, checked as a whole.

    Raises:
        Refusal: with the file a key stands in, the key and what would be right.
    """

    def read(name: str) -> Any:
        file = path.parent / f"{name}.yml"
        return load_yaml(file, str(file.relative_to(CATALOG.parent)))

    release = extended(path.stem, names("releases"), read)
    found: dict[str, list[str]] = {}
    for error in errors("release", release.content):
        sentences = found.setdefault(release.file_with(_key(error)), [])
        if sentence(error) not in sentences:
            sentences.append(sentence(error))
    if not found:
        # A name is never taken from another file.
        own = release.files[path.stem].get("name")
        if own != path.stem:
            found[file_of(path.stem)] = [f"name is {own}, but must be the file's own name, {path.stem}."]
    _refuse(found)
    return dict(release.content)


def load_checked(kind: str, path: Path) -> dict[str, Any]:
    """One catalogue file, checked.

    Raises:
        Refusal: with the file, and for each finding the key and what would be right.
    """
    if kind == "release":
        return load_release(path)
    shown = str(path.relative_to(CATALOG.parent))
    document = load_yaml(path, shown)
    found = findings(kind, document)
    pins = path.with_name(f"{path.stem}.pins.yaml")
    if kind == "model" and not found and pins.exists():
        shown = str(pins.relative_to(CATALOG.parent))
        document = with_pins(document, load_yaml(pins, shown))
        found = findings(kind, document)
    if not found and kind != "cards" and document["name"] != path.stem:
        found = [f"name is {document['name']}, but must be the file's own name, {path.stem}."]
    _refuse({shown: found} if found else {})
    return dict(document)


def names(folder: str) -> list[str]:
    """Names of all files of a catalogue folder (models, releases)."""
    return sorted(path.stem for path in (CATALOG / folder).glob("*.yml"))


def resolve(folder: str, word: str, name: object) -> Path:
    """The file for a name.

    Raises:
        Refusal: there is none; with the names that are near.
    """
    known = names(folder)
    text = str(name)
    if isinstance(name, str) and _NAME.match(text) and text in known:
        return CATALOG / folder / f"{text}.yml"
    sentence = absent(text[:100])
    # Far too many for a sentence.
    every = " docs/models.md lists them." if folder == "models" else f" Known: {', '.join(known)}."
    hint = f" {sentence}" if sentence else close_matches(text[:100], known) or every
    raise Refusal("not_in_catalogue", f"There is no {word} {_cut(name)} in catalog/{folder}.{hint}")


def request_list(value: object) -> list[Any]:
    """The requests as a list; ``-e plan_requests=[...]`` arrives as text.

    Raises:
        Refusal: neither a list nor text that reads as one.
    """
    if isinstance(value, str):
        try:
            value = parse(value, "requests")
        except Refusal as error:
            raise Refusal(
                "not_yaml",
                f"requests is text that is neither JSON nor YAML: {_cut(value)}. "
                f"""On the command line blanks end a value; write -e '{{"plan_requests": [...]}}'.""",
            ) from error
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list):
        raise Refusal(
            "not_a_list", f"requests must be a list of mappings such as [{{model: qwen3-8b}}], not {_cut(value)}."
        )
    return value


def read_topology(name: str) -> dict[str, Any]:
    """A topology from a file: the result of gaudi_topology_info, its topology alone, or what hl-smi printed.

    Raises:
        Refusal: no such file, or something else in it; with the file, the key and what would be right.
    """
    shown = f"The topology file {_cut(name, 200)[1:-1]}"
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

    Raises:
        Refusal: it is no topology; with the key and what would be right.
    """
    try:
        document: dict[str, Any] = given.given_topology(content)
    except Refusal as refusal:
        raise refusal.about(shown) from refusal
    return document


def _commands(repositories: Mapping[str, Any], target: str) -> str:
    """The commands that get a repository by hand, one a hub."""
    commands = []
    for hub, source in repositories.items():
        revision = f" --revision {source['revision']}" if "revision" in source else ""
        command = hub_kind(hub).command
        commands.append(command.format(repository=source["repository"], revision=revision, target=target))
    return ", or ".join(commands)


def how_to_get(entry: Mapping[str, Any], directory: str) -> str:
    """Say how to get a model's weights; ``directory`` is where the plan expects them on the node."""
    root, _, name = directory.rpartition("/")
    # A card that takes the weights as they are published is served from that folder.
    conversion = entry.get("conversion") if name == entry["directory"] else None
    target = f"{root}/{conversion['from_directory']}" if conversion else directory
    commands = _commands(entry["repositories"], target)
    if not commands:
        return f"They are published nowhere; catalog/models/{entry['name']}.yml says where they come from."
    ours = f"ansible-playbook playbooks/fetch_weights.yml -e model={entry['name']}; by hand: "
    fetch = ours if "huggingface" in entry["repositories"] else ""
    wish = "Set gaudi_weights_fetch: true to have them brought in the same run, or get them with: "
    begin = wish if source_plan.source_plan(entry, name) else "Get them with: "
    more = f" Then convert {target} to {directory} with playbooks/convert_weights.yml." if conversion else ""
    measured = entry.get("measurements")
    if measured:
        by_hand = _commands(measured["repositories"], f"{root}/{measured['directory']}")
        ours = f"playbooks/calibrate.yml -e model={entry['name']} makes them"
        more += f" Its measurement files: {by_hand}." if by_hand else f" Its measurement files: {ours}."
    return f"{begin}{fetch}{commands}.{more}"


def how_to_get_hub_id(name: str, root: str) -> str:
    """Say how weights that are named by a hub's id come to be a directory; ``root`` holds the node's models."""
    return (
        f"Fetch them with: ansible-playbook playbooks/fetch_weights.yml -e repository={name} -e revision=COMMIT. Then "
        f"serve the directory they go to: weights={root}/{name.rpartition('/')[2]}."
    )


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core carries no types
    """Load, check, call once, put the answers back in the order of the requests."""

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
        _, options = self.validate_argument_spec(self.SPEC, mutually_exclusive=[("topology", "topology_file")])
        try:
            result, models = self._plan(options, task_vars or {})
        except Refusal as refusal:
            # The sentence says it all; with its cause Ansible would print it twice.
            raise AnsibleActionFail(str(refusal), result={"refused_id": refusal.id}) from None
        if options["page"] and not result.get("failed"):
            notes = {name: entry.get("notes", []) for name, entry in models.items()}
            names = [name_of(request) for request in request_list(options["requests"])]
            page = describe(result["plans"], result["topology"], result.get("reserved"), notes, names)
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
        models, refused = self._models(requests)
        refused.update(broken)
        refused.update(open_ones)
        report = options["on_refusal"] == "report"
        try:
            release = load_checked("release", resolve("releases", "release", options["release"]))
            cards = load_checked("cards", CATALOG / "cards.yml")
        except Refusal as refusal:
            if not (report and requests):
                raise
            # Nothing can be planned, so the node is not asked; whoever asked for a report gets it for every request.
            plans = [self._refusal(request, refusal) for request in requests]
            return {
                "changed": False,
                "plans": plans,
                "topology": topology,
                "how_to_get": {},
                "source_plans": {},
                "release": {},
            }, models
        if refused and not report:
            sentences = dict.fromkeys(str(refusal) for refusal in refused.values())
            raise Refusal(next(iter(refused.values())).id, " ".join(sentences))
        arguments = {
            "requests": [request for position, request in enumerate(requests) if position not in refused],
            "models": models,
            "release": release,
            "cards": cards,
            "on_refusal": options["on_refusal"],
            **{key: options[key] for key in HANDED_ON if options[key]},
            **({} if topology is None else {"topology": topology}),
        }
        result: dict[str, Any] = self._execute_module("serving_plan", arguments, task_vars=self._interpreter(task_vars))
        if not result.get("failed"):
            result["release"] = release
            answers = iter(result["plans"])
            result["plans"] = [
                self._refusal(request, refused[position]) if position in refused else next(answers)
                for position, request in enumerate(requests)
            ]
            result.update(
                self._source_plans(requests, result["plans"], models, str(options["weights_root"] or WEIGHTS_ROOT))
            )
        return result, models

    @staticmethod
    def _source_plans(
        requests: list[Any], plans: list[dict[str, Any]], models: dict[str, Any], root: str
    ) -> dict[str, dict[str, Any]]:
        """How to get the weights of each instance, and where they can be fetched from."""
        sentences: dict[str, Any] = {}
        source_plans: dict[str, Any] = {}
        for request, plan in zip(requests, plans, strict=True):
            instance = plan["instance"]
            if instance is None or "refused" in plan:
                continue
            path = plan["requires"]["weights_path"]
            if plan["model"]:
                sentences[instance] = how_to_get(models[plan["model"]], path)
            elif path is None:
                sentences[instance] = how_to_get_hub_id(request["weights"], root)
            source_plans[instance] = source_plan.source_plans(plan, models.values(), root)
        return {"how_to_get": sentences, "source_plans": source_plans}

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
                    f"The config.json of {_cut(request.get('weights'))} is not valid JSON: {error}. "
                    "Get the model's files again, or correct it.",
                )
        return read, broken

    def _guarded(self, requests: list[Any], task_vars: dict[str, Any]) -> tuple[list[Any], dict[int, Refusal]]:
        """The requests, guarded where the host has keys for them, and a refusal for each that contradicts itself.

        Read here, so that no caller can forget it: a server whose keys were overlooked would be open.
        """
        read = role_options.Host(self._loader, task_vars).read("vllm_service_api_keys")
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
    def _models(requests: list[Any]) -> tuple[dict[str, Any], dict[int, Refusal]]:
        """The catalogue entries the requests name, and a refusal for each request whose entry cannot be had."""
        models: dict[str, Any] = {}
        refused: dict[int, Refusal] = {}
        for position, request in enumerate(requests):
            if not isinstance(request, Mapping):
                refused[position] = Refusal(
                    "not_a_mapping", f"A request must be a mapping such as {{model: qwen3-8b}}, not {_cut(request)}."
                )
                continue
            beside = request.get("share_card_with")
            for name in [request.get("model"), *(beside if isinstance(beside, list) else [])]:
                if name is None or (isinstance(name, str) and name in models):
                    continue
                try:
                    models[name] = load_checked("model", resolve("models", "model", name))
                except Refusal as refusal:
                    refused[position] = refusal
        return models, refused

    @staticmethod
    def _refusal(request: object, refusal: Refusal) -> dict[str, Any]:
        """What the module itself answers for a request it refuses."""
        name = request.get("instance") if isinstance(request, Mapping) else None
        return {"instance": name if isinstance(name, str) else None, **refusal.as_keys()}

    def _interpreter(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """On the controller itself the playbook's own interpreter plans: no other is known to have what it needs."""
        if self._connection.transport != "local":
            return task_vars
        return {**task_vars, "ansible_python_interpreter": sys.executable}
