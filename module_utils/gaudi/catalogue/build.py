"""How the image of a release is built: what its file says under ``build``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..base.checks import Reader

# A fork of vLLM with its own extension, or vLLM itself with the plugin.
KINDS = ("fork", "plugin")


def flat(value: Mapping[str, object], where: str) -> frozenset[str]:
    """One set out of {place read from: [names]}."""
    reader = Reader(value, where, tuple(value))
    return frozenset(name for place in value for name in reader.texts(place))


def reasons(value: Mapping[str, object], where: str) -> dict[str, str]:
    """Each name of {group: {because: sentence, names: [...]}} with its sentence."""
    found: dict[str, str] = {}
    for group, content in value.items():
        reader = Reader(content, f"{where}.{group}", ("because", "names"))
        found.update(dict.fromkeys(reader.texts("names", required=True), reader.text("because")))
    return found


@dataclass(frozen=True)
class Pin:
    """A repository at one commit; ``reference`` is the tag or branch that the commit was taken from, for people."""

    repository: str
    commit: str
    reference: str | None = None

    KEYS = ("repository", "commit", "reference")

    @classmethod
    def from_mapping(cls, value: object, where: str) -> Pin:
        """Read one entry of ``pins``."""
        reader = Reader(value, where, cls.KEYS)
        return cls(
            repository=reader.text("repository", longest=256),
            commit=reader.text("commit", longest=64),
            reference=reader.optional_text("reference"),
        )


@dataclass(frozen=True)
class Constraint:
    """Allowed versions of a Python package, such as ``==4.57.1``; ``inferred`` if no file of the fork states them."""

    version: str
    source: str
    inferred: bool = False

    KEYS = ("version", "source", "inferred")

    @classmethod
    def from_mapping(cls, value: object, where: str) -> Constraint:
        """Read one entry of ``build.constraints``."""
        reader = Reader(value, where, cls.KEYS)
        return cls(
            reader.text("version", longest=64),
            reader.text("source"),
            reader.switch("inferred", default=False),
        )


@dataclass(frozen=True)
class ImageWay:
    """An alternative to the release's own pins that a manual names, or the reason why it cannot be built.

    ``pins`` replace all of the release's vLLM repositories; without ``pins`` the release's own stay. Every other key
    replaces the same key of ``build``, or of the release's ``constants`` (graph_reserved_mem, bucket_defaults).
    ``lacks`` are arguments, variables and architectures of the release that those pins do not have; ``architectures``
    and ``model_types`` replace the release's. ``refused_architectures`` are those of them that end the server, and
    ``warned`` features to warn of, both beside the release's.
    ``refused``: a sentence that says why it cannot be built and what to do.
    """

    source: str
    pins: Mapping[str, Pin] = field(default_factory=dict)
    requirements: str | None = None
    version: str | None = None
    constraints: Mapping[str, Constraint] | None = None
    refused: str | None = None
    constants: Mapping[str, str] = field(default_factory=dict)
    lacks: Mapping[str, frozenset[str]] = field(default_factory=dict)
    architectures: frozenset[str] = frozenset()
    model_types: frozenset[str] = frozenset()
    refused_architectures: Mapping[str, str] = field(default_factory=dict)
    warned: Mapping[str, str] = field(default_factory=dict)

    CONSTANTS = ("graph_reserved_mem", "bucket_defaults")
    CLASSES = ("architectures", "model_types")
    SAID = ("refused_architectures", "warned")
    KEYS = ("source", "pins", "requirements", "version", "constraints", "refused", "lacks", *CLASSES, *CONSTANTS, *SAID)
    LACKS = ("arguments", "variables", "architectures")

    @classmethod
    def from_mapping(cls, value: object, where: str) -> ImageWay:
        """Read one entry of ``build.ways``."""
        reader = Reader(value, where, cls.KEYS)
        return cls(
            source=reader.text("source"),
            pins={
                name: Pin.from_mapping(entry, f"{where}.pins.{name}") for name, entry in reader.mapping("pins").items()
            },
            requirements=reader.optional_text("requirements"),
            version=reader.optional_text("version"),
            constraints=_constraints(reader, where) if reader.has("constraints") else None,
            refused=reader.optional_text("refused"),
            constants={name: reader.text(name) for name in cls.CONSTANTS if reader.has(name)},
            lacks={
                kind: frozenset(Reader(reader.mapping("lacks"), f"{where}.lacks", cls.LACKS).texts(kind))
                for kind in cls.LACKS
            },
            architectures=flat(reader.mapping("architectures"), f"{where}.architectures"),
            model_types=flat(reader.mapping("model_types"), f"{where}.model_types"),
            refused_architectures=reasons(reader.mapping("refused_architectures"), f"{where}: refused_architectures"),
            warned=reader.text_mapping("warned"),
        )


def _constraints(reader: Reader, where: str) -> dict[str, Constraint]:
    return {
        name: Constraint.from_mapping(entry, f"{where}.constraints.{name}")
        for name, entry in reader.mapping("constraints").items()
    }


@dataclass(frozen=True)
class ImageBuild:
    """What differs between the images of releases; images of one kind share all their build steps.

    ``requirements`` and ``build_requirements`` are files of the installed checkout. ``version`` is passed to
    setuptools-scm, as a checkout of one commit has no tags. ``sees_cards``: its setup.py builds for Gaudi only if
    ``hl-smi`` shows a card. ``audio_extra``: the extra with the audio libraries. ``quantization``: the distribution
    that quantises. ``ways``: alternatives to the release's own pins, by name.
    """

    kind: str
    requirements: str
    constraints: Mapping[str, Constraint]
    build_requirements: str | None = None
    version: str | None = None
    sees_cards: bool = False
    audio_extra: str | None = None
    pillow_simd: str | None = None
    benchmark: tuple[str, ...] = ()
    quantization: str = "neural-compressor-pt"
    ways: Mapping[str, ImageWay] = field(default_factory=dict)

    KEYS = (
        "kind",
        "requirements",
        "constraints",
        "build_requirements",
        "version",
        "sees_cards",
        "audio_extra",
        "pillow_simd",
        "benchmark",
        "quantization",
        "ways",
    )

    @classmethod
    def from_mapping(cls, value: object, where: str) -> ImageBuild:
        """Read the ``build`` mapping of a release file; ``where`` names the file for messages."""
        reader = Reader(value, where, cls.KEYS)
        return cls(
            kind=reader.choice("kind", KINDS),
            requirements=reader.text("requirements", longest=128),
            constraints=_constraints(reader, where),
            build_requirements=reader.optional_text("build_requirements"),
            version=reader.optional_text("version"),
            sees_cards=reader.switch("sees_cards", default=False),
            audio_extra=reader.optional_text("audio_extra"),
            pillow_simd=reader.optional_text("pillow_simd"),
            benchmark=reader.texts("benchmark"),
            quantization=reader.text("quantization", default="neural-compressor-pt"),
            ways={
                name: ImageWay.from_mapping(entry, f"{where}.ways.{name}")
                for name, entry in reader.mapping("ways").items()
            },
        )

    def by(self, way: ImageWay) -> ImageBuild:
        """Return the build settings with those of an alternative in their place."""
        return replace(
            self,
            requirements=way.requirements or self.requirements,
            version=way.version or self.version,
            constraints=self.constraints if way.constraints is None else way.constraints,
        )
