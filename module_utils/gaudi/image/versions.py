"""Version labels of a built image, known once the finished image was inspected."""

from __future__ import annotations

import re

from .inside import ImageFindings
from .labels import VERSION_LABEL
from .parts import NUMACTL
from .requirements import project

UNLABELLED = "-unlabelled"
"""The end of an image's name until its labels say its versions."""

PYTHON = "python"
"""Stands among the names for the image's own Python."""

# The vendor's distributions, those built from checkouts, those that must match them, and the libraries of parts.
_TOLD = re.compile(
    r"(habana|torch|vllm|neural-compressor|pillow)[a-z0-9-]*|triton|numpy|ray|tokenizers|transformers|librosa|soundfile|"
    r"datasets"
)
_CONSTRAINED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def version_labels(inside: ImageFindings, constraints: str) -> dict[str, str]:
    """Return the version labels that a build adds to its image, sorted by name.

    constraints: the constraints file of the build; the distributions that it names get labels too.
    """
    named = {project(found[0]) for found in map(_CONSTRAINED.match, constraints.splitlines()) if found}
    versions = {name: version for name, version in inside.packages.items() if _TOLD.fullmatch(name) or name in named}
    versions.update({name: version for name, version, _ in inside.system if name == NUMACTL})
    versions[PYTHON] = inside.python
    return {f"{VERSION_LABEL}{name}": versions[name] for name in sorted(versions)}
