"""Tell whether the PyTorch of an image is Habana's, and which step of a build replaced it.

Habana's builds name the commit or the vendor's release behind the version: 2.11.0a0+git009b5f6 (1.24.1),
2.6.0+hpu_1.20.0-543.git4952fce. torchvision with its own index brought 2.11.0+cpu, and accelerate 2.12.1+cu130, both
seen by owners of cards; an index's plain 2.11.0 is for CUDA too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..base.refusal import Refusal

_HABANAS = re.compile(r"[^+]+\+(?:hpu\b|hpu[_.-]|git[0-9a-f]{6,40}\b)\S*")
# How the vendor names images that have upstream's PyTorch on purpose, a base and ready-made ones.
UPSTREAM = re.compile(r"pytorch-upstream-|-ptupstream-")
# What an import says where no card is given to the container; a build has none.
_NO_CARD = re.compile(r"synDeviceAcquire|No such device|[Nn]o (?:habana )?devices?\b|[Dd]evice (?:not found|acquire)")

# pip's lines about the distributions that it replaces.
_FOUND = re.compile(r"Found existing installation: torch (?P<version>\S+)")
_REMOVED = re.compile(r"Successfully uninstalled torch-(?P<version>\d\S*)")
_INSTALLED = re.compile(r"Successfully installed (?P<names>.*)")
_TORCH = re.compile(r"(?:^|\s)torch-(?P<version>\d\S*)")
_OTHERS = re.compile(r"(?:^|\s)(?P<name>(?:torch(?:vision|audio)|accelerate|transformers|timm|xformers)-\d\S*)")


@dataclass(frozen=True)
class PyTorchReplacement:
    """That pip replaced PyTorch by another one. ``step``: of the build. ``beside``: what it installed with it."""

    step: str
    before: str
    after: str
    beside: tuple[str, ...] = ()


@dataclass
class Watcher:
    """Reads pip's lines one by one, and remembers the last replacement of PyTorch."""

    replaced: PyTorchReplacement | None = None
    _before: str = ""

    def add(self, line: str, step: str = "") -> None:
        """Add a line of pip, printed in a step."""
        found = _FOUND.search(line) or _REMOVED.search(line)
        if found:
            self._before = found["version"]
        installed = _INSTALLED.search(line)
        if not installed:
            return
        after = _TORCH.search(installed["names"])
        if after and self._before and after["version"] != self._before:
            beside = tuple(match["name"] for match in _OTHERS.finditer(installed["names"]))
            self.replaced = PyTorchReplacement(step, self._before, after["version"], beside)
        self._before = ""


def replaced_in(lines: Iterable[str]) -> PyTorchReplacement | None:
    """Return the last replacement of PyTorch in pip's output; None without one."""
    watcher = Watcher()
    for line in lines:
        watcher.add(line)
    return watcher.replaced


def is_habanas(version: str) -> bool:
    """Whether a version of torch has the tag of Habana's builds."""
    return _HABANAS.fullmatch(version) is not None


def refusal(
    image: str, base: str, of_base: str, found: str, failure: str = "", replaced: PyTorchReplacement | None = None
) -> Refusal | None:
    """Return why the PyTorch of a built image cannot be used; None if it can, or if the image has none.

    base: the base image. of_base, found: the versions in base and image, "" for none. failure: why PyTorch or the
    vendor's plugin cannot be imported. replaced: what the build's output shows.
    """
    if not found:
        return None
    by = ""
    if replaced is not None and replaced.after == found:
        step = f"The step {replaced.step}" if replaced.step else "A step"
        beside = f" with {', '.join(replaced.beside)}" if replaced.beside else ""
        by = f" {step} replaced {replaced.before}{beside}."
    meant = of_base if of_base and (is_habanas(of_base) or UPSTREAM.search(base)) else ""
    if found != meant and (meant or not is_habanas(found)):
        needed = f"{meant}, that of its base image," if meant else "Habana's build (2.11.0a0+git009b5f6)"
        return Refusal(
            "pytorch_not_habanas",
            f"{image} holds PyTorch {found}, which does not support Gaudi cards; {needed} is required.{by}",
            f"Pin the package that installed it to a version that accepts {meant or 'the PyTorch of the base image'} "
            "(serving_image_constraints, serving_image_pins), or leave it out; then build again.",
        )
    if failure and not _NO_CARD.search(failure):
        return Refusal(
            "pytorch_not_importable",
            f"{image} holds PyTorch {found}, but habana_frameworks.torch cannot be imported with it ({failure}).{by}",
            "Both must be of one release: correct serving_image_base, serving_image_pins or "
            "serving_image_constraints, then build again.",
        )
    return None
