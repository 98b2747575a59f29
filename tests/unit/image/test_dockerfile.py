"""The Dockerfile of an image: its steps in their order, and what must never be in it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.image import recipe as recipes
from ansible.module_utils.gaudi.image.dockerfile import constraints, dockerfile, steps

from plugin_utils import releases
from tests.unit.image.made import made

ROOT = Path(__file__).resolve().parents[3]
CONTEXT = ROOT / "roles" / "serving_image" / "files" / "gaudi_image" / "context"
ALL = ("numactl", "host_nics", "audio", "benchmark", "pillow_simd")
# Of everything that makes the steps. A change that changes images raises VERSION in recipe.py; any other change only
# writes the new digest here.
STEPS = (1, "b984965d6c5905f3")


def asked(name: str = "1.22", needs: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    return [step.arguments for step in steps(made(name, needs))]


def test_a_fork_is_built_in_this_order() -> None:
    names = [arguments[0] for arguments in asked(needs=ALL)]
    assert names == [
        *("system", "checkout", "checkout", "install", "checkout", "install", "requirements", "install"),
        *("checkout", "make", "system", "system", "checkout", "libfabric", "checkout", "hccl_ofi_wrapper"),
        *("install", "packages", "system", "pillow_simd"),
    ]


def test_pillow_simd_is_the_last_step_of_python() -> None:
    assert asked(needs=ALL)[-1] == ("pillow_simd", "11.3.0.post0")


def test_requirement_lines_are_replaced_where_the_release_pins_them() -> None:
    assert asked()[6][3:] == ("--replaced=vllm-hpu-extension", "--replaced=neural-compressor-pt")
    assert [line[3:] for line in asked("1.21") if line[0] == "requirements"] == [("--replaced=vllm-hpu-extension",)]
    assert [line[3:] for line in asked("1.18") if line[0] == "requirements"] == [()]


def test_the_fork_is_built_for_gaudi_and_says_its_commit() -> None:
    text = dockerfile(made())
    assert "VLLM_TARGET_DEVICE=hpu SETUPTOOLS_SCM_PRETEND_VERSION=0.9.0.2.dev76+g4cd8c0613 sh" in text
    assert "--no-build-isolation --no-deps --editable /opt/vllm-fork" in text


def test_a_setup_that_looks_for_cards_finds_one() -> None:
    assert "GAUDI_BUILD_PATH=/run/gaudi-build/cards" in dockerfile(made("1.16"))
    assert "GAUDI_BUILD_PATH" not in dockerfile(made("1.18"))


def test_the_plugin_is_built_upon_vllm_without_a_device() -> None:
    text = dockerfile(made("plugin"))
    assert [line[:2] for line in asked("plugin")][:4] == [
        ("system", "ca-certificates"),
        ("checkout", "https://github.com/vllm-project/vllm-gaudi"),
        ("checkout", "https://github.com/vllm-project/vllm"),
        ("requirements", "/opt/vllm"),
    ]
    assert "requirements/build/cuda.txt --dropped=torch" in text
    assert re.search(
        r"VLLM_TARGET_DEVICE=empty \S+ sh \S+ install --no-build-isolation --editable /opt/vllm$", text, re.M
    )
    assert re.search(r"VLLM_TARGET_DEVICE=hpu \S+ sh .* /opt/vllm-gaudi$", text, re.M)
    assert "transformers==5.14.1  # inferred\n" in constraints(made("plugin"))


@pytest.mark.parametrize("name", [*releases.names(), "plugin"])
def test_no_dockerfile_asks_a_hub_or_keeps_an_entry_point(name: str) -> None:
    text = dockerfile(made(name))
    assert "syntax=" not in text
    assert text.startswith("#")
    assert "\nENTRYPOINT []\n" in text
    assert "FROM ${BASE}\n" in text


def test_where_things_come_from_is_a_secret_of_the_step_that_asks() -> None:
    text = dockerfile(made(needs=ALL))
    runs = text.split("\nRUN ")[1:]
    for run in runs:
        assert run.startswith("--mount=type=bind,source=programs,target=/run/gaudi-build")
        # What is installed is seen by the steps that install, which alone are done again where it changes.
        assert ("source=packages," in run) == ("id=pip" in run)
    checkouts = [run for run in runs if "steps.sh checkout" in run]
    assert all("id=git" in run and "id=pip" not in run for run in checkouts)
    assert all(
        "id=pip" in run for run in runs if re.search(r"steps.sh (install|requirements|packages|pillow_simd)", run)
    )


def test_a_step_that_compiles_has_no_account_of_a_git_host_and_none_of_apt() -> None:
    """A makefile is code of its repository, and reads what the step has."""
    runs = dockerfile(made(needs=ALL)).split("\nRUN ")[1:]
    reading = {"checkout": {"git"}, "system": {"apt", "apt_key"}}
    for run in runs:
        (step,) = re.findall(r"steps.sh (\w+)", run)
        given = set(re.findall(r"type=secret,id=(\w+)", run))
        assert given - {"pip"} == reading.get(step, set()), step
    compiling = [run for run in runs if re.search(r"steps.sh (make|libfabric|hccl_ofi_wrapper) ", run)]
    assert len(compiling) == 3
    assert [run for run in compiling if "type=secret" in run] == []


def test_images_of_one_release_share_their_first_steps() -> None:
    plain, more = dockerfile(made(needs=("numactl",))), dockerfile(made(needs=ALL))
    common = plain[: plain.index("\nLABEL")]
    assert more.startswith(common)


def test_host_nics_find_their_library() -> None:
    assert "ENV LIBFABRIC_ROOT=/opt/libfabric\n" in dockerfile(made(needs=("host_nics",)))
    assert "ENV LD_LIBRARY_PATH=/opt/libfabric/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\n" in dockerfile(
        made(needs=ALL)
    )
    assert "LIBFABRIC" not in dockerfile(made())


def test_a_constraint_of_the_site_takes_the_place_of_the_releases() -> None:
    said = constraints(made(constraints=["transformers==4.57.0", "torch-extra>=1,<2"]))
    assert "transformers==4.57.0\n" in said
    assert "4.57.1" not in said
    assert said.endswith("torch-extra>=1,<2\n")


def test_a_change_of_the_steps_raises_their_version() -> None:
    content = [dockerfile(made(name, ("numactl",))) for name in [*releases.names(), "plugin"]]
    content += [dockerfile(made(needs=ALL))]
    files = sorted(path for path in CONTEXT.rglob("*") if path.is_file() and path.suffix != ".pyc")
    files += [ROOT / "module_utils/gaudi/image/requirements.py"]
    content += [path.read_text(encoding="utf-8") for path in files]
    seen = hashlib.sha256("\0".join(content).encode()).hexdigest()[:16]
    assert (recipes.VERSION, seen) == STEPS, "see STEPS above"
