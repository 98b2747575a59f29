"""How the image of a release is built: what its file says under ``build``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..base.checks import Reader

# A fork of vLLM with its own extension, or vLLM itself with the plugin.
KINDS = ("fork", "plugin")


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
class Build:
    """What differs between the images of releases; the steps are the same for all of a kind.

    ``requirements`` and ``build_requirements`` are files of the checkout that is installed; ``version`` is told to
    setuptools-scm, as a checkout of one commit has no tags; ``sees_cards`` is true for a setup.py that builds for
    Gaudi only where ``hl-smi`` shows a card; ``audio_extra`` is the extra that brings the audio libraries;
    ``quantization`` is the distribution that quantises.
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
    )

    @classmethod
    def from_mapping(cls, value: object, where: str) -> Build:
        """Read the ``build`` mapping of a release file; ``where`` names the file for messages."""
        reader = Reader(value, where, cls.KEYS)
        return cls(
            kind=reader.choice("kind", KINDS),
            requirements=reader.text("requirements", longest=128),
            constraints={
                name: Constraint.from_mapping(entry, f"{where}.constraints.{name}")
                for name, entry in reader.mapping("constraints").items()
            },
            build_requirements=reader.optional_text("build_requirements"),
            version=reader.optional_text("version"),
            sees_cards=reader.switch("sees_cards", default=False),
            audio_extra=reader.optional_text("audio_extra"),
            pillow_simd=reader.optional_text("pillow_simd"),
            benchmark=reader.texts("benchmark"),
            quantization=reader.text("quantization", default="neural-compressor-pt"),
        )
