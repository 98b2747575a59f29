"""What may be known of a server or a program when it ends. Facts decide between the causes of one line of its log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# The module of the kernel that offers the cards' links as InfiniBand verbs, which HCL uses.
VERBS = "habanalabs_ib"
# Status of docker run.
_ENGINE_REFUSED = 125
_RELEASE = re.compile(r"\d{1,3}\.\d{1,3}(?:\.\d{1,3})?")


@dataclass(frozen=True)
class Facts:
    """Each field is None where it is not known.

    release: that of the plan, for example "1.24.1". status: exit status of the container or program. served: whether
    the server had been ready. driver and image: version of the driver that is loaded, and of the vendor's software in
    the image. cards: module ids of the plan. visible: module ids that the driver offers. passed: module ids of the plan
    whose device the container had. holders: processes other than the instance's own that have one of the cards open,
    each in words. modules: loaded modules of the kernel.
    infiniband: whether /dev/infiniband is there. model: name or type of the model. command: the argument vector.
    filling: what was filling the device memory (Progress.filling). kernel_oom: increase of the kernel's count of
    out-of-memory kills.
    """

    release: str | None = None
    status: int | None = None
    served: bool | None = None
    driver: str | None = None
    image: str | None = None
    cards: tuple[int, ...] | None = None
    visible: tuple[int, ...] | None = None
    passed: tuple[int, ...] | None = None
    holders: tuple[str, ...] | None = None
    modules: frozenset[str] | None = None
    infiniband: bool | None = None
    model: str | None = None
    command: tuple[str, ...] | None = None
    filling: str | None = None
    kernel_oom: int | None = None

    def is_so(self, name: str) -> bool | None:
        """Return whether a statement is true: the name of a property below, or what fills the memory; None: unknown."""
        if name in ("weights", "profiling"):
            return None if self.filling is None else self.filling == name
        found: bool | None = getattr(self, name)
        return found

    @property
    def engine_refused(self) -> bool | None:
        """Whether docker run ended because the engine refused it."""
        return None if self.status is None else self.status == _ENGINE_REFUSED

    @property
    def card_held(self) -> bool | None:
        """Whether another process has one of the cards open."""
        return None if self.holders is None else bool(self.holders)

    @property
    def releases_differ(self) -> bool | None:
        """Whether driver and image are of two releases. Their builds may differ."""
        of_driver, of_image = (_numbers(text) for text in (self.driver, self.image or self.release))
        # The plan of 1.24 has a driver 1.24.0.
        return any(one != other for one, other in zip(of_driver, of_image)) if of_driver and of_image else None

    @property
    def card_missing(self) -> bool | None:
        """Whether the driver offers fewer cards than are planned."""
        if self.visible is None:
            return None
        return not self.visible if self.cards is None else bool(set(self.cards) - set(self.visible))

    @property
    def card_not_passed(self) -> bool | None:
        """Whether the container lacked the device of a card that the driver offers."""
        return None if self.passed is None or self.cards is None else bool(self._not_passed())

    def _not_passed(self) -> list[int]:
        offered = set(self.cards or ()) if self.visible is None else set(self.cards or ()) & set(self.visible)
        return sorted(offered - set(self.passed or ()))

    @property
    def verbs_missing(self) -> bool | None:
        """Whether the module that offers verbs is not loaded."""
        return None if self.modules is None else VERBS not in self.modules

    @property
    def verbs_not_passed(self) -> bool | None:
        """Whether that module is loaded, and its devices are not there."""
        if self.verbs_missing or self.infiniband:
            return False
        return None if self.verbs_missing is None or self.infiniband is None else True

    @property
    def gated_delta(self) -> bool | None:
        """Whether it is release 1.24.1 with a model of gated delta layers: Qwen3-Next, Qwen3.5, Qwen3.6."""
        if self.model is None or self.release is None:
            return None
        return self.release == "1.24.1" and bool(re.search(r"(?i)qwen3[._-]?(?:next|5|6)", self.model))

    @property
    def gpt_oss(self) -> bool | None:
        """Whether the model is gpt-oss."""
        return None if self.model is None else bool(re.search(r"(?i)gpt[_-]?oss", self.model))

    @property
    def gemma4_too_early(self) -> bool | None:
        """Whether the model is Gemma 4, and the release before 1.24.1."""
        if self.model is None or self.release is None:
            return None
        numbers = [int(number) for number in re.findall(r"\d{1,6}", self.release.partition("-")[0])]
        return bool(re.search(r"(?i)gemma[_-]?4", self.model) and numbers) and numbers < [1, 24, 1]

    def words(self) -> Mapping[str, str]:
        """Return what a sentence may be filled with."""
        missing = sorted(set(self.cards or ()) - set(self.visible or ()))
        return {
            "holders": "; ".join(self.holders or ())
            or ("hl-smi names it" if self.holders is None else "no process has it open by now"),
            "driver": self.driver or "of an unknown version",
            "image": self.image or self.release or "of an unknown version",
            "missing": ", ".join(map(str, missing)) or "of the plan",
            "not_passed": ", ".join(map(str, self._not_passed())),
        }


def _numbers(version: str | None) -> list[int]:
    """Return the numbers of a release in a version, without its build."""
    found = _RELEASE.search(version or "")
    return [int(number) for number in found[0].split(".")] if found else []
