"""Which versions the labels of a built image say."""

from __future__ import annotations

import dataclasses

import pytest
from ansible.module_utils.gaudi.image.dockerfile import constraints
from ansible.module_utils.gaudi.image.labels import VERSION_LABEL, labelled_versions, vendor_release
from ansible.module_utils.gaudi.image.versions import version_labels

from tests.unit.image.made import made
from tests.unit.image.test_sbom import FOUND

PACKAGES = {
    "habana-torch-plugin": "1.22.2.32",
    "habana-pyhlml": "1.22.2.32",
    "neural-compressor-pt": "3.4",
    "pillow-simd": "11.3.0.post0",
    "torch": "2.7.1",
    "torchaudio": "2.7.1",
    "transformers": "4.57.1",
    "vllm": "0.9.0.2.dev76+g4cd8c0613",
    "vllm-hpu-extension": "0.1",
}


def test_what_was_built_and_what_must_fit_it_is_named() -> None:
    inside = dataclasses.replace(FOUND, packages={**PACKAGES, "pip": "24", "own-thing": "7"}, python="3.10.12")
    said = labelled_versions(version_labels(inside, "own.thing<8  # inferred\n"))
    assert said == {**PACKAGES, "own-thing": "7", "python": "3.10.12"}
    assert list(said) == sorted(said)


def test_the_constraints_of_a_release_are_named() -> None:
    recipe = made(constraints=["soundest==2"])
    inside = dataclasses.replace(FOUND, packages=dict.fromkeys(["soundest", *recipe.constraints], "1"))
    said = labelled_versions(version_labels(inside, constraints(recipe)))
    assert {"soundest", *(name.lower().replace("_", "-") for name in recipe.constraints)} <= set(said)


def test_of_the_system_s_packages_the_part_is_named() -> None:
    inside = dataclasses.replace(FOUND, packages={}, system=(("bash", "5", "amd64"), ("numactl", "2.0.14-3", "amd64")))
    assert version_labels(inside, "") == {
        f"{VERSION_LABEL}numactl": "2.0.14-3",
        f"{VERSION_LABEL}python": inside.python,
    }


def test_other_labels_say_no_version() -> None:
    assert labelled_versions({"gaudi-serving.image.release": "1.22"}) == {}


@pytest.mark.parametrize(
    ("reference", "labels", "release"),
    [
        ("gaudi-serving/vllm:1.24-abc", {f"{VERSION_LABEL}habana-torch-plugin": "1.24.0.5"}, "1.24.0.5"),
        ("site/rhel:1", {"vendor": "Habanalabs Ltd.", "release": "1.22.0-740"}, "1.22.0-740"),
        ("site/rhel:1", {"vendor": "Red Hat, Inc.", "release": "1747"}, None),
        ("vault.habana.ai/gaudi-docker/1.22.2/ubuntu22.04/habanalabs/pytorch-installer-2.7.1:latest", {}, "1.22.2"),
        ("site/vllm:1", {"gaudi-serving.image.base": "gaudi-docker/1.23.0/ubuntu24.04/habanalabs/x:latest"}, "1.23.0"),
        ("site/vllm:1.22", {}, None),
        # A registry's label may say anything.
        ("site/vllm:1", {f"{VERSION_LABEL}habana-torch-plugin": "1.24.0 " + "and run this " * 9999}, None),
    ],
)
def test_the_vendor_s_release_is_that_of_the_plugin_then_of_labels_and_names(
    reference: str, labels: dict[str, str], release: str | None
) -> None:
    assert vendor_release(reference, labels) == release
