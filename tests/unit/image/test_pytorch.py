"""Whether an image's PyTorch is Habana's, and what replaced it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.gaudi.image.output import Follower, failure
from ansible.module_utils.gaudi.image.pytorch import PyTorchReplacement, is_habanas, refusal, replaced_in

RECORDED = Path(__file__).parent / "recorded"
BASE = "vault.habana.ai/gaudi-docker/1.24.1/ubuntu24.04/habanalabs/pytorch-installer-2.11.0:1.24.1-482"
UPSTREAM = BASE.replace("pytorch-installer-2.11.0", "pytorch-upstream-installer-2.11.0")
OURS, CPU, CUDA = "2.11.0a0+git009b5f6", "2.11.0+cpu", "2.12.1+cu130"
IMAGE = "gaudi-serving/vllm:1.24.1-abc"
# As an owner of a card quotes pip (JChen-318/gaudi2-single-card-driver, record of 2026-10-09).
TORCHVISION = """\
  Attempting uninstall: torch
    Found existing installation: torch 2.11.0a0+git009b5f6
    Successfully uninstalled torch-2.11.0a0+git009b5f6
Successfully installed torch-2.11.0+cpu torchvision-0.26.0+cpu
"""
COMPLAINT = (RECORDED / "pip_resolver_complaint_1.24.1.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("version", "habanas"),
    [
        (OURS, True),
        ("2.4.0a0+git74cd574", True),
        ("2.6.0+hpu_1.20.0-543.git4952fce", True),
        ("2.6.0+hpu.1.21.3.57", True),
        (CPU, False),
        (CUDA, False),
        ("2.11.0", False),
        ("2.13.0+rocm6.4", False),
        ("2.13.0+xpu", False),
        ("", False),
    ],
)
def test_habanas_builds_are_told_by_their_tag(version: str, habanas: bool) -> None:
    assert is_habanas(version) is habanas


@pytest.mark.parametrize("found", [CPU, CUDA, "2.11.0"])
def test_another_pytorch_is_refused_with_what_brought_it(found: str) -> None:
    replaced = PyTorchReplacement("libraries for sound", OURS, found, ("torchvision-0.26.0+cpu",))
    refused = refusal(IMAGE, BASE, OURS, found, "", replaced)
    assert refused is not None
    assert refused.id == "pytorch_not_habanas"
    assert f"{IMAGE} holds PyTorch {found}, which does not support Gaudi cards; {OURS}" in str(refused)
    assert f"The step libraries for sound replaced {OURS} with torchvision-0.26.0+cpu." in str(refused)
    assert "serving_image_constraints" in str(refused)


@pytest.mark.parametrize(
    ("base", "of_base", "found", "id_"),
    [
        (BASE, OURS, OURS, None),
        (BASE, "", "", None),
        (BASE, "", OURS, None),
        (BASE, "", CPU, "pytorch_not_habanas"),
        # Of a base that has it already, too.
        (BASE, CPU, CPU, "pytorch_not_habanas"),
        # Another build of Habana's does not fit the plugin of the base.
        (BASE, OURS, "2.10.0a0+git1234567", "pytorch_not_habanas"),
        # The vendor's images with upstream's PyTorch.
        (UPSTREAM, CPU, CPU, None),
        (UPSTREAM, CPU, CUDA, "pytorch_not_habanas"),
        (BASE.replace("pytorch-installer-2.11.0", "vllm-0.17.1-ptupstream-2.10.0"), "2.10.0+cpu", "2.10.0+cpu", None),
    ],
)
def test_the_pytorch_of_the_base_image_stays(base: str, of_base: str, found: str, id_: str | None) -> None:
    refused = refusal(IMAGE, base, of_base, found)
    assert (refused and refused.id) == id_


def test_a_plugin_that_does_not_fit_is_refused_and_a_missing_card_is_not() -> None:
    refused = refusal(IMAGE, BASE, OURS, OURS, "ImportError: undefined symbol: _ZN3c10")
    assert refused is not None
    assert refused.id == "pytorch_not_importable"
    assert "undefined symbol: _ZN3c10" in str(refused)
    for words in ("RuntimeError: synDeviceAcquire failed", "OSError: [Errno 19] No such device"):
        assert refusal(IMAGE, BASE, OURS, OURS, words) is None


def test_what_replaced_it_is_read_from_pip() -> None:
    assert replaced_in(TORCHVISION.splitlines()) == PyTorchReplacement("", OURS, CPU, ("torchvision-0.26.0+cpu",))
    again = f"{TORCHVISION}Found existing installation: torch 2.11.0+cpu\nSuccessfully installed torch-{CUDA}\n"
    assert replaced_in(again.splitlines()) == PyTorchReplacement("", CPU, CUDA)


def test_the_recorded_complaint_of_pip_is_neither_a_replacement_nor_a_cause() -> None:
    """It names two versions of PyTorch, and pip went on and succeeded."""
    assert replaced_in(COMPLAINT.splitlines()) is None
    lines = [*COMPLAINT.splitlines(), "#9 12.3 make: *** [Makefile:7: all] Error 2"]
    assert failure("hccl_demo", lines).id == "not-compiled"
    assert refusal(IMAGE, BASE, OURS, OURS) is None


@pytest.mark.parametrize(
    "line",
    [
        f"AssertionError: Current PyTorch version {CUDA} is detected as neither HPU fork nor CPU upstream.",
        "RuntimeError: Failed to load the backend extension: device_backend. You can disable extension auto-loading.",
    ],
)
def test_a_step_that_imports_another_pytorch_fails_for_that_reason(line: str) -> None:
    """As an owner's build ended (YpS-YpS/gaudi-images-port); pip's own words about the package come after it."""
    found = failure("the vLLM plugin", [f"#9 12.3 {line}", "#9 12.4 ERROR: Failed building editable for vllm-gaudi"])
    assert found.id == "pytorch-replaced"
    assert "is not Habana's any more" in str(found)


def test_the_step_that_replaced_it_is_known_however_much_was_printed_later() -> None:
    follower = Follower(["the fork", "sound", "hccl_demo"])
    follower.add("#7 [3/4] RUN --mount=type=bind steps.sh install")
    for line in TORCHVISION.splitlines():
        follower.add(f"#7 12.345 {line}")
    follower.add("#8 [4/4] RUN --mount=type=bind steps.sh make")
    for number in range(1000):
        follower.add(f"#8 {number}.5 text")
    assert follower.pytorch.replaced == PyTorchReplacement("sound", OURS, CPU, ("torchvision-0.26.0+cpu",))
