"""Dataclasses for the catalogue files that the planner reads: one for a model, one for a release, one for a card type.

The YAML files under ``catalog/`` have exactly these keys. The JSON Schemas check them on the controller with the file's
name. ``from_mapping`` checks them again on the node that plans, because a plan must not rest on unchecked values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.checks import Reader, integer, mapping, matching, sequence
from ..base.refusal import Refusal
from ..weights.hub_kinds import KINDS
from .build import ImageBuild, Pin, flat, reasons
from .fabric import Fabric
from .typed import TypedOption

# Bounds against nonsense (a negative layer count, a parameter count in thousands of trillions).
_MOST = 10**15

# Tasks that read a text once, so that the KV cache does not have to hold a conversation.
POOLING_TASKS = ("embed", "score")


@dataclass(frozen=True)
class State:
    """Layers without a KV cache (gdn: gated delta nets, or mamba), and the bytes of one sequence's state in one layer.

    The bytes are those of the whole model; the cards of an instance share them.
    """

    kind: str
    layers: int
    bytes: int


@dataclass(frozen=True)
class Architecture:
    """Values of a model's config.json that rules use. ``num_experts`` is 0 for a dense model.

    ``parameters`` counts weights; ``max_position_embeddings`` and lengths are in tokens. ``kv_bytes_per_token`` is only
    given if the usual formula does not hold (multi-head latent attention).
    """

    model_type: str
    num_attention_heads: int
    num_key_value_heads: int
    num_hidden_layers: int
    hidden_size: int
    max_position_embeddings: int
    vocab_size: int
    parameters: int | None = None
    head_dim: int | None = None
    num_experts: int = 0
    # Multi-head latent attention keeps one compressed vector per token and layer instead of keys and values.
    kv_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    # How wide an expert is.
    moe_intermediate_size: int | None = None
    # True for models whose published length needs an option (rope scaling), which extra_args may switch on.
    position_bias_alibi: bool = False
    # Layers without a KV cache; None where every layer has one.
    state: State | None = None

    KEYS = (
        "model_type",
        "num_attention_heads",
        "num_key_value_heads",
        "num_hidden_layers",
        "hidden_size",
        "max_position_embeddings",
        "vocab_size",
        "parameters",
        "head_dim",
        "num_experts",
        "kv_lora_rank",
        "qk_rope_head_dim",
        "moe_intermediate_size",
        "position_bias_alibi",
        "state",
    )

    @classmethod
    def from_mapping(cls, value: object, where: str) -> Architecture:
        """Read the ``architecture`` mapping of a model file; ``where`` names the file for messages."""
        reader = Reader(value, where, cls.KEYS)

        def optional(key: str) -> int | None:
            return reader.integer(key, 1, _MOST) if reader.has(key) else None

        return cls(
            model_type=reader.text("model_type", longest=64),
            num_attention_heads=reader.integer("num_attention_heads", 1, 4096),
            num_key_value_heads=reader.integer("num_key_value_heads", 1, 4096),
            num_hidden_layers=reader.integer("num_hidden_layers", 1, 4096),
            hidden_size=reader.integer("hidden_size", 1, 1 << 20),
            max_position_embeddings=reader.integer("max_position_embeddings", 1, 1 << 30),
            vocab_size=reader.integer("vocab_size", 1, 1 << 30),
            parameters=optional("parameters"),
            head_dim=optional("head_dim"),
            num_experts=reader.integer("num_experts", 0, 1 << 16, default=0),
            kv_lora_rank=optional("kv_lora_rank"),
            qk_rope_head_dim=optional("qk_rope_head_dim"),
            moe_intermediate_size=optional("moe_intermediate_size"),
            position_bias_alibi=reader.switch("position_bias_alibi", default=False),
            state=_state(reader.raw("state"), f"{where}.state") if reader.has("state") else None,
        )


def _state(value: object, where: str) -> State:
    """The ``state`` of an architecture: kind (gdn or mamba), layers, and bytes of one sequence in one layer."""
    reader = Reader(value, where, ("kind", "layers", "bytes"))
    return State(
        reader.choice("kind", ("gdn", "mamba")), reader.integer("layers", 1, 4096), reader.integer("bytes", 1, _MOST)
    )


SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Source:
    """The origin of weights. ``revision`` is a commit, so that the same file always means the same bytes."""

    repository: str
    revision: str | None = None
    # SHA-256 by name of small files (configuration, tokenizer, code), compared after fetching: a mirror that lies about
    # the commit cannot lie about these.
    files: Mapping[str, str] = field(default_factory=dict)

    KEYS = ("repository", "revision", "files")

    @classmethod
    def from_mapping(cls, value: object, where: str) -> Source:
        """Read one entry of ``repositories`` (or of ``measurements.repositories``)."""
        reader = Reader(value, where, cls.KEYS)
        return cls(
            repository=reader.text("repository", longest=256),
            revision=reader.optional_text("revision"),
            files={
                name: matching(sha256, f"{where}.files.{name}", SHA256, "64 hexadecimal digits")
                for name, sha256 in reader.mapping("files").items()
            },
        )


def _repositories(value: Mapping[str, object], where: str) -> dict[str, Source]:
    Reader(value, where, tuple(KINDS))
    return {hub: Source.from_mapping(entry, f"{where}.{hub}") for hub, entry in value.items()}


@dataclass(frozen=True)
class Measurements:
    """INC measurement files that go with FP8 weights: 3 files per card, made for one tensor parallel size."""

    repositories: Mapping[str, Source]
    directory: str
    tensor_parallel_size: int

    KEYS = ("repositories", "directory", "tensor_parallel_size")

    @classmethod
    def from_mapping(cls, value: object, where: str) -> Measurements:
        """Read the ``measurements`` mapping of a model file."""
        reader = Reader(value, where, cls.KEYS)
        return cls(
            repositories=_repositories(reader.mapping("repositories"), f"{where}.repositories"),
            directory=reader.text("directory", longest=256),
            tensor_parallel_size=reader.integer("tensor_parallel_size", 1, 64),
        )


@dataclass(frozen=True)
class ValidatedConfigurations:
    """Configurations that the maintainers of vllm-gaudi list as validated (validated_models.md of its tags)."""

    releases: tuple[str, ...]
    generations: tuple[str, ...]
    tensor_parallel_size: tuple[int, ...]
    dtype: tuple[str, ...]

    KEYS = ("releases", "generations", "tensor_parallel_size", "dtype")

    @classmethod
    def from_mapping(cls, value: object, where: str) -> ValidatedConfigurations:
        """Read the ``validated`` mapping of a model file."""
        reader = Reader(value, where, cls.KEYS)
        sizes = sequence(reader.raw("tensor_parallel_size"), f"{where}.tensor_parallel_size")
        return cls(
            releases=reader.texts("releases", required=True),
            generations=reader.texts("generations", required=True),
            tensor_parallel_size=tuple(integer(size, f"{where}.tensor_parallel_size", 1, 64) for size in sizes),
            dtype=reader.texts("dtype", required=True),
        )


@dataclass(frozen=True)
class WeightsConversion:
    """How the served directory is made from the published weights, and which card types need it."""

    tool: str
    from_directory: str
    card_types: tuple[str, ...]

    KEYS = ("tool", "from_directory", "card_types")
    TOOLS = ("fp8_block", "fp8_dynamic")

    @property
    def published_in_fp8(self) -> bool:
        """Whether the published weights are FP8 in blocks; fp8_dynamic makes FP8 of BF16."""
        return self.tool == "fp8_block"

    @classmethod
    def from_mapping(cls, value: object, where: str) -> WeightsConversion:
        """Read the ``conversion`` mapping of a model file."""
        reader = Reader(value, where, cls.KEYS)
        return cls(
            tool=reader.choice("tool", cls.TOOLS),
            from_directory=reader.text("from_directory", longest=256),
            card_types=reader.texts("card_types", required=True),
        )


@dataclass(frozen=True)
class ChatCheck:
    """A test question for a chat model, and words of which a right answer contains at least one, in any case."""

    question: str
    contains: tuple[str, ...]

    KEYS = ("question", "contains")

    @classmethod
    def from_mapping(cls, value: object, where: str, task: str) -> ChatCheck:
        """Read the ``check`` of a model file; task: what the model is for."""
        if task != "generate":
            raise Refusal("check_without_chat", f"{where} is for a model that chats, and task is {task}. Leave it out.")
        reader = Reader(value, where, cls.KEYS)
        return cls(reader.text("question", longest=1000), reader.texts("contains", required=True))


@dataclass(frozen=True)
class ModelEntry:
    """One file of ``catalog/models``.

    Required keys
        ``name`` (lower case, equals the file's name), ``title`` (as its authors write it), ``repositories``
        (hub -> {repository, revision}), ``directory`` (below the weights root, what is *served*), ``dtype`` (as
        stored: bfloat16, float16, float8_e4m3fn, mxfp4), ``defaults`` (request options, exactly as a request writes
        them; every one is overridable), ``sources`` (where the values come from).

    Optional keys
        ``architecture``, ``weights_bytes`` (of the served files): left out where nobody has read them. The model is
                            then planned with the config.json that a request brings (``model_config``)
        ``architectures``   classes that its config.json names, of which a release needs one
        ``releases``        releases this model is known to be served with, the best first; others get a warning
        ``unsupported``     {"1.22": sentence} releases it is known not to be served with, and why: they are refused
        ``unsupported_generations`` {"gaudi2": sentence} cards it is known not to be served on, and why: refused
        ``validated``       what the maintainers of vllm-gaudi have validated; whatever else is asked for gets a warning
        ``release_defaults`` {"1.21": {option: value}} more defaults, applied over ``defaults``
        ``card_defaults``   {"HL-288E": {option: value}} more defaults for a card type, applied last
        ``task``            generate (default), complete (a base model that was taught no chat), embed or score
        ``trust_remote_code`` default false; true where config.json has auto_map and its releases have no class of their
                            own for it, whatever the vendor's scripts pass
        ``reasoning_parser`` parser of a thinking model, e.g. deepseek_r1
        ``limit_mm_per_prompt`` {image: 5}, ``mm_processor_kwargs`` {max_pixels: 1003520}: written as JSON
        ``check``           {question: ..., contains: [Paris]}: what a model that chats is asked once it serves, and
                            words of which its answer has one; with another answer it computes wrong numbers
        ``conversion``, ``measurements`` FP8 only
        ``notes``           sentences for a person: memory advice, corrected mistakes of a manual
    """

    name: str
    title: str
    repositories: Mapping[str, Source]
    directory: str
    dtype: str
    defaults: Mapping[str, object]
    sources: tuple[str, ...]
    architecture: Architecture | None = None
    architectures: tuple[str, ...] = ()
    weights_bytes: int | None = None
    releases: tuple[str, ...] = ()
    unsupported: Mapping[str, str] = field(default_factory=dict)
    unsupported_generations: Mapping[str, str] = field(default_factory=dict)
    validated: ValidatedConfigurations | None = None
    release_defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    card_defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    task: str = "generate"
    trust_remote_code: bool = False
    reasoning_parser: str | None = None
    limit_mm_per_prompt: Mapping[str, int] = field(default_factory=dict)
    mm_processor_kwargs: Mapping[str, object] = field(default_factory=dict)
    check: ChatCheck | None = None
    conversion: WeightsConversion | None = None
    measurements: Measurements | None = None
    notes: tuple[str, ...] = ()

    KEYS = (
        "name",
        "title",
        "repositories",
        "directory",
        "architecture",
        "architectures",
        "weights_bytes",
        "dtype",
        "defaults",
        "sources",
        "releases",
        "unsupported",
        "unsupported_generations",
        "validated",
        "release_defaults",
        "card_defaults",
        "task",
        "trust_remote_code",
        "reasoning_parser",
        "limit_mm_per_prompt",
        "mm_processor_kwargs",
        "check",
        "conversion",
        "measurements",
        "notes",
    )
    DTYPES = ("bfloat16", "float16", "float32", "float8_e4m3fn", "mxfp4")
    TASKS = ("generate", "complete", "embed", "score")

    @classmethod
    def from_mapping(cls, value: object) -> ModelEntry:
        """Read a model file's content; raises Refusal with file and key."""
        name = value.get("name") if isinstance(value, Mapping) else None
        where = f"catalog/models/{name}.yml" if isinstance(name, str) else "a model file"
        reader = Reader(value, where, cls.KEYS)
        images = reader.mapping("limit_mm_per_prompt")
        task = reader.choice("task", cls.TASKS, default="generate")
        return cls(
            name=reader.text("name", longest=96),
            title=reader.text("title", longest=128),
            repositories=_repositories(reader.mapping("repositories"), f"{where}: repositories"),
            directory=reader.text("directory", longest=256),
            architecture=(
                Architecture.from_mapping(reader.raw("architecture"), f"{where}: architecture")
                if reader.has("architecture")
                else None
            ),
            architectures=reader.texts("architectures"),
            weights_bytes=reader.integer("weights_bytes", 1, _MOST) if reader.has("weights_bytes") else None,
            dtype=reader.choice("dtype", cls.DTYPES),
            defaults=reader.mapping("defaults", required=True),
            sources=reader.texts("sources", required=True),
            releases=reader.texts("releases"),
            unsupported=reader.text_mapping("unsupported"),
            unsupported_generations=reader.text_mapping("unsupported_generations"),
            validated=(
                ValidatedConfigurations.from_mapping(reader.raw("validated"), f"{where}: validated")
                if reader.has("validated")
                else None
            ),
            release_defaults=_nested(reader.mapping("release_defaults"), f"{where}: release_defaults"),
            card_defaults=_nested(reader.mapping("card_defaults"), f"{where}: card_defaults"),
            task=task,
            trust_remote_code=reader.switch("trust_remote_code", default=False),
            reasoning_parser=reader.optional_text("reasoning_parser"),
            limit_mm_per_prompt={
                kind: integer(count, f"{where}: limit_mm_per_prompt.{kind}", 0, 1024) for kind, count in images.items()
            },
            mm_processor_kwargs=reader.mapping("mm_processor_kwargs"),
            check=ChatCheck.from_mapping(reader.raw("check"), f"{where}: check", task) if reader.has("check") else None,
            conversion=(
                WeightsConversion.from_mapping(reader.raw("conversion"), f"{where}: conversion")
                if reader.has("conversion")
                else None
            ),
            measurements=(
                Measurements.from_mapping(reader.raw("measurements"), f"{where}: measurements")
                if reader.has("measurements")
                else None
            ),
            notes=reader.texts("notes"),
        )


def _nested(value: Mapping[str, object], where: str) -> dict[str, Mapping[str, object]]:
    nested: dict[str, Mapping[str, object]] = {}
    for key, options in value.items():
        if not isinstance(options, Mapping):
            raise Refusal("not_a_mapping", f"{where}.{key} must be a mapping of request options.")
        nested[key] = options
    return nested


@dataclass(frozen=True)
class ContainerPrivileges:
    """The most that a plan may give a container: what the release's manual passes to ``docker run``.

    ``network`` and ``ipc`` are host or private; ``capabilities`` are without CAP_; ``memlock``: memory may be locked
    without limit.
    """

    network: str
    ipc: str
    capabilities: tuple[str, ...]
    memlock: bool

    KEYS = ("network", "ipc", "capabilities", "memlock")
    NAMESPACES = ("host", "private")

    @classmethod
    def from_mapping(cls, value: object, where: str) -> ContainerPrivileges:
        """Read the ``container`` mapping of a release file."""
        reader = Reader(value, where, cls.KEYS)
        return cls(
            network=reader.choice("network", cls.NAMESPACES),
            ipc=reader.choice("ipc", cls.NAMESPACES),
            capabilities=reader.texts("capabilities", required=True),
            memlock=reader.switch("memlock"),
        )


@dataclass(frozen=True)
class Successor:
    """What replaced a variable or argument of another release; exactly one of the three is given.

    ``becomes``: its new name. ``implied``: why it is not needed any more. ``because``: why it has no replacement.
    """

    becomes: str | None = None
    implied: str | None = None
    because: str | None = None

    KEYS = ("becomes", "implied", "because")

    @classmethod
    def table(cls, value: Mapping[str, object], where: str) -> dict[str, Successor]:
        """Read ``successors``: {variables: {name: ...}, arguments: {name: ...}} as one table."""
        found = {}
        for kind, names in value.items():
            for name, entry in mapping(names, f"{where}.{kind}").items():
                reader = Reader(entry, f"{where}.{kind}.{name}", cls.KEYS)
                found[name] = cls(*(reader.optional_text(key) for key in cls.KEYS))
        return found


@dataclass(frozen=True)
class ReadyImage:
    """An image of the vendor's with vLLM in it: its path, a tag that was seen (None: only tags that move), the version
    of vLLM in it, and its PyTorch: "fork" (the vendor's) or "upstream".
    """

    path: str
    tag: str | None
    vllm: str
    pytorch: str

    @classmethod
    def table(cls, value: object, where: str) -> tuple[ReadyImage, ...]:
        """Read ``ready_images``."""
        found = []
        for place, entry in enumerate(sequence(value, where)):
            reader = Reader(entry, f"{where}[{place}]", ("path", "tag", "vllm", "pytorch"))
            pytorch = reader.choice("pytorch", ("fork", "upstream"))
            found.append(cls(reader.text("path"), reader.optional_text("tag"), reader.text("vllm"), pytorch))
        return tuple(found)


@dataclass(frozen=True)
class ReleaseEntry:
    """One file of ``catalog/releases``.

    ``rules`` names the family of rules (``families/registry.py`` lists them and refuses others);
    ``constants`` are the numbers those rules use; ``unsupported`` are features with the sentence to refuse them with;
    ``arguments`` and ``variables`` are what the release's server knows, each list under the place it was read from;
    ``paths`` is where its server answers, listed like the arguments;
    ``typed_arguments`` and ``typed_variables`` are those whose type, default and choices are known, and count as known;
    ``warned`` are features with the sentence to warn of them; ``metrics`` are the names that /metrics exports;
    ``log_formats`` are lines that its server prints, by what they say; ``ready_images`` are the vendor's with vLLM;
    ``successors`` is what became of names that other releases know; ``benchmark`` is the release's benchmark client;
    ``listed_cards`` are the numbers of cards that the release's README lists a model of the catalogue with;
    ``execution_modes`` maps "<PT_HPU_LAZY_MODE> <enforce_eager>" to what runs then; ``architectures`` and
    ``model_types`` are what the server has classes of its own for, listed like the arguments;
    ``multimodal_architectures`` are those of them for pictures, films and sounds, empty where nobody read them;
    ``refused_architectures`` are classes that its registry names and that end the server on these cards, each with the
    reason; ``unverified_architectures`` are those that only vLLM's Transformers backend takes; ``code_architectures``
    are classes of the release's own that run code of the weights, whatever --trust-remote-code says; ``unpickles``:
    whether its server runs what is in pickled tensors; ``build`` is how its image is built, None where the file says no
    way.
    """

    name: str
    title: str
    rules: str
    software: Mapping[str, object]
    image: Mapping[str, str]
    container: ContainerPrivileges
    fork_directory: str
    pins: Mapping[str, Pin]
    constants: Mapping[str, Any]
    environment: Mapping[str, str]
    execution_modes: Mapping[str, str]
    unsupported: Mapping[str, str]
    arguments: frozenset[str]
    variables: frozenset[str]
    sources: tuple[str, ...]
    architectures: frozenset[str] = frozenset()
    model_types: frozenset[str] = frozenset()
    multimodal_architectures: frozenset[str] = frozenset()
    refused_architectures: Mapping[str, str] = field(default_factory=dict)
    unverified_architectures: Mapping[str, str] = field(default_factory=dict)
    code_architectures: frozenset[str] = frozenset()
    unpickles: bool = False
    build: ImageBuild | None = None
    # URL paths that the server answers, sorted.
    paths: tuple[str, ...] = ()
    typed_arguments: Mapping[str, TypedOption] = field(default_factory=dict)
    typed_variables: Mapping[str, TypedOption] = field(default_factory=dict)
    warned: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    log_formats: Mapping[str, str] = field(default_factory=dict)
    ready_images: tuple[ReadyImage, ...] = ()
    successors: Mapping[str, Successor] = field(default_factory=dict)
    benchmark: Mapping[str, object] = field(default_factory=dict)
    listed_cards: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    KEYS = (
        "name",
        "title",
        "rules",
        "software",
        "image",
        "container",
        "fork_directory",
        "pins",
        "constants",
        "environment",
        "execution_modes",
        "listed_cards",
        "unsupported",
        "arguments",
        "variables",
        "sources",
        "architectures",
        "model_types",
        "multimodal_architectures",
        "refused_architectures",
        "unverified_architectures",
        "code_architectures",
        "unpickles",
        "build",
        "paths",
        "typed_arguments",
        "typed_variables",
        "warned",
        "metrics",
        "log_formats",
        "ready_images",
        "benchmark",
        "successors",
    )

    @classmethod
    def from_mapping(cls, value: object) -> ReleaseEntry:
        """Read a release file's content; raises Refusal with file and key."""
        name = value.get("name") if isinstance(value, Mapping) else None
        where = f"catalog/releases/{name}.yml" if isinstance(name, str) else "a release file"
        reader = Reader(value, where, cls.KEYS)
        image = Reader(reader.raw("image"), f"{where}: image", ("registry", "path", "tag", "digest"))
        if image.text("tag") == "latest":
            raise Refusal(
                "moving_tag", f"{where}: image.tag is latest, which means another image tomorrow. Name the build."
            )
        options = TypedOption.table(reader.mapping("typed_arguments"), f"{where}: typed_arguments")
        variables = TypedOption.table(reader.mapping("typed_variables"), f"{where}: typed_variables")
        return cls(
            name=reader.text("name", longest=32),
            title=reader.text("title", longest=128),
            rules=reader.text("rules", longest=32),
            software=reader.mapping("software", required=True),
            image={
                "registry": image.text("registry"),
                "path": image.text("path"),
                "tag": image.text("tag"),
                "digest": image.text("digest", default=""),
            },
            container=ContainerPrivileges.from_mapping(reader.raw("container"), f"{where}: container"),
            fork_directory=reader.text("fork_directory"),
            pins={
                key: Pin.from_mapping(pin, f"{where}: pins.{key}")
                for key, pin in reader.mapping("pins", required=True).items()
            },
            constants=reader.mapping("constants", required=True),
            environment=reader.text_mapping("environment"),
            execution_modes=reader.text_mapping("execution_modes"),
            listed_cards={
                model: tuple(
                    integer(count, f"{where}: listed_cards.{model}", 1, 16) for count in sequence(counts, where)
                )
                for model, counts in reader.mapping("listed_cards").items()
            },
            unsupported=reader.text_mapping("unsupported"),
            arguments=flat(reader.mapping("arguments", required=True), f"{where}: arguments").union(options),
            variables=flat(reader.mapping("variables", required=True), f"{where}: variables").union(variables),
            sources=reader.texts("sources", required=True),
            architectures=flat(reader.mapping("architectures"), f"{where}: architectures"),
            model_types=flat(reader.mapping("model_types"), f"{where}: model_types"),
            multimodal_architectures=flat(
                reader.mapping("multimodal_architectures"), f"{where}: multimodal_architectures"
            ),
            refused_architectures=reasons(reader.mapping("refused_architectures"), f"{where}: refused_architectures"),
            unverified_architectures=reasons(
                reader.mapping("unverified_architectures"), f"{where}: unverified_architectures"
            ),
            code_architectures=flat(reader.mapping("code_architectures"), f"{where}: code_architectures"),
            unpickles=reader.switch("unpickles", default=False),
            build=ImageBuild.from_mapping(reader.raw("build"), f"{where}: build") if reader.has("build") else None,
            paths=tuple(sorted(flat(reader.mapping("paths"), f"{where}: paths"))),
            typed_arguments=options,
            typed_variables=variables,
            warned=reader.text_mapping("warned"),
            metrics=reader.texts("metrics"),
            log_formats=reader.text_mapping("log_formats"),
            ready_images=ReadyImage.table(reader.raw("ready_images"), f"{where}: ready_images")
            if reader.has("ready_images")
            else (),
            successors=Successor.table(reader.mapping("successors"), f"{where}: successors"),
            benchmark=reader.mapping("benchmark"),
        )


@dataclass(frozen=True)
class CardType:
    """One entry of ``catalog/cards.yml``. Memory in MiB, power in watts."""

    name: str
    generation: str
    pci_ids: tuple[str, ...]
    memory_mib: int
    idle_memory_mib: int | None
    power_watts: int | None
    internal_ports: int | None
    external_ports: int | None
    # Largest finite value of the card's FP8 format: 240 where published weights (448) must be converted.
    fp8_max: int | None
    # Which cards are joined, and published bandwidths; None for a card type that is not measured.
    fabric: Fabric | None

    KEYS = (
        "generation",
        "names",
        "pci_ids",
        "memory_mib",
        "idle_memory_mib",
        "power_watts",
        "internal_ports",
        "external_ports",
        "fp8_max",
        "fabric",
        "sources",
    )

    @classmethod
    def table(cls, value: object) -> dict[str, CardType]:
        """Read ``catalog/cards.yml``: card names as hl-smi prints them to card types."""
        where = "catalog/cards.yml"
        top = Reader(value, where, ("cards", "compute"))
        result: dict[str, CardType] = {}
        for key, entry in top.mapping("cards").items():
            reader = Reader(entry, f"{where}: {key}", cls.KEYS)

            def optional(name: str, reader: Reader = reader) -> int | None:
                return reader.integer(name, 0, 1 << 24) if reader.has(name) else None

            card = cls(
                name=key,
                generation=reader.text("generation", longest=16),
                pci_ids=reader.texts("pci_ids", required=True),
                memory_mib=reader.integer("memory_mib", 1, 1 << 24),
                idle_memory_mib=optional("idle_memory_mib"),
                power_watts=optional("power_watts"),
                internal_ports=optional("internal_ports"),
                external_ports=optional("external_ports"),
                fp8_max=optional("fp8_max"),
                fabric=Fabric.from_mapping(reader.raw("fabric"), f"{where}: {key}") if reader.has("fabric") else None,
            )
            for printed in reader.texts("names", required=True):
                if printed in result:
                    raise Refusal("card_name_twice", f"{where}: the name {printed} belongs to two card types.")
                result[printed] = card
        return result

    @staticmethod
    def names_by_pci_id(table: Mapping[str, CardType]) -> dict[str, str]:
        """Return the card type of each PCI id in a table; of two with the same id the first."""
        return {pci_id: kind.name for kind in reversed([*table.values()]) for pci_id in kind.pci_ids}
