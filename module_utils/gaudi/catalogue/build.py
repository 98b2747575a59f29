"""How the image of a release is built: what its file says under ``build``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..base.checks import Reader

# A fork of vLLM with its own extension, or vLLM itself with the plugin.
KINDS = ("fork", "plugin")


@dataclass(frozen=True)
class Pin:
    """One repository at one commit; ``reference`` is the tag or branch the commit was taken from, for people."""

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
    """Versions of a Python package that are let in, such as ``==4.57.1``; inferred if no file of the fork says so."""

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
class Way:
    """Another way to an image than the release's own pins: what a manual names beside them, or why it cannot be gone.

    ``pins`` take the place of the release's repositories of vLLM, all of them; without any they are the release's own.
    What else is named takes the place of the same key of ``build``; ``refused`` is a sentence that says why not and
    what to do.
    """

    source: str
    pins: Mapping[str, Pin] = field(default_factory=dict)
    requirements: str | None = None
    version: str | None = None
    constraints: Mapping[str, Constraint] | None = None
    refused: str | None = None

    KEYS = ("source", "pins", "requirements", "version", "constraints", "refused")

    @classmethod
    def from_mapping(cls, value: object, where: str) -> Way:
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
        )


def _constraints(reader: Reader, where: str) -> dict[str, Constraint]:
    return {
        name: Constraint.from_mapping(entry, f"{where}.constraints.{name}")
        for name, entry in reader.mapping("constraints").items()
    }


@dataclass(frozen=True)
class Build:
    """What differs between the images of releases; the steps are the same for all of a kind.

    ``requirements`` and ``build_requirements`` are files of the checkout that is installed; ``version`` is told to
    setuptools-scm, as a checkout of one commit has no tags; ``sees_cards`` is true for a setup.py that builds for
    Gaudi only where ``hl-smi`` shows a card; ``audio_extra`` is the extra that brings the audio libraries;
    ``quantization`` is the distribution that quantises; ``ways`` are others than the release's own, by name.
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
    ways: Mapping[str, Way] = field(default_factory=dict)

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
    def from_mapping(cls, value: object, where: str) -> Build:
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
                name: Way.from_mapping(entry, f"{where}.ways.{name}") for name, entry in reader.mapping("ways").items()
            },
        )

    def by(self, way: Way) -> Build:
        """The same, for another way."""
        return replace(
            self,
            requirements=way.requirements or self.requirements,
            version=way.version or self.version,
            constraints=self.constraints if way.constraints is None else way.constraints,
        )
