"""What the manuals install by hand, each with the steps that do it here.

000 and 001 are the two manuals for Gaudi2 (of vLLM 1.21 and 1.22), 002 is vLLM's page on installing, 004 the README of
release 1.16. The scenario ``images`` runs the same steps on a node.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.gaudi.image.addresses import pip_config
from ansible.module_utils.gaudi.image.dockerfile import dockerfile, steps
from ansible.module_utils.gaudi.image.recipe import Recipe

from plugin_utils import releases
from tests.unit.image.made import entry, made

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "images.md"
FORK = "https://github.com/HabanaAI/vllm-fork"
EXTENSION = "https://github.com/HabanaAI/vllm-hpu-extension"


def done(recipe: Recipe) -> list[tuple[str, ...]]:
    """The steps, each as one tuple of words."""
    return [(*step.environment, *step.arguments) for step in steps(recipe)]


def at(recipe: Recipe, words: tuple[str, ...]) -> int:
    """Where a step has these words, one after the other."""
    for number, said in enumerate(done(recipe)):
        if any(said[start : start + len(words)] == words for start in range(len(said))):
            return number
    raise AssertionError(f"no step has {words}")


@pytest.mark.parametrize(
    ("release", "way", "wanted"),
    [
        # 000, 1.4: git clone -b aice/v1.21.0; pip install -r; VLLM_TARGET_DEVICE=hpu pip install -e
        (
            "1.21",
            "",
            [
                ("checkout", FORK, "277a33cd907e3e475a408a7330698d55a9365fc7"),
                ("requirements", "/opt/vllm-fork", "requirements/hpu.txt"),
                ("VLLM_TARGET_DEVICE=hpu",),
                ("--editable", "/opt/vllm-fork"),
            ],
        ),
        # 001, 1.4: the same of aice/v1.22.0, with --no-build-isolation
        (
            "1.22",
            "",
            [
                ("checkout", FORK, "4cd8c06139077824b7bd175cef0cde7c4cd86ab8"),
                ("requirements", "/opt/vllm-fork", "requirements/hpu.txt"),
                ("install", "--no-build-isolation"),
                ("--editable", "/opt/vllm-fork"),
            ],
        ),
        # 000 and 001, 3.1.2: clone -b deepseek_r1, both; pip install -e of both
        (
            "deepseek-r1",
            "",
            [
                ("checkout", FORK, "687dd5bbd9eb13ce4a3859b1ad4b4c6d1121dd31"),
                ("checkout", EXTENSION),
                ("--editable", "/opt/vllm-hpu-extension"),
                ("--editable", "/opt/vllm-fork"),
            ],
        ),
        # 002, upstream: git clone vllm-project/vllm; pip install -r requirements/hpu.txt; setup.py develop
        (
            "1.18",
            "upstream",
            [
                ("checkout", "https://github.com/vllm-project/vllm", "25f560a62c4f955672e2c6080b17ab3a48f96201"),
                ("requirements", "/opt/vllm-fork", "requirements/hpu.txt"),
                ("VLLM_TARGET_DEVICE=hpu",),
                ("--editable", "/opt/vllm-fork"),
            ],
        ),
        # 002, habana_main: git checkout habana_main; the same
        (
            "1.22",
            "habana_main",
            [
                ("checkout", FORK, "0366662c12e2d26584dd2616d82bfd1b58247489"),
                ("requirements", "/opt/vllm-fork", "requirements/hpu.txt"),
                ("--editable", "/opt/vllm-fork"),
            ],
        ),
        # 002, docker build -f Dockerfile.hpu: what the file does
        (
            "1.18",
            "dockerfile_hpu",
            [
                ("checkout", FORK, "84922944da5b65fa43bbdc465650911cbef9de72"),
                ("requirements", "/opt/vllm-fork", "requirements-hpu.txt"),
                ("--editable", "/opt/vllm-fork"),
            ],
        ),
        # 004: git checkout v0.4.2-Gaudi-1.16.0; pip install -e .
        (
            "1.16",
            "",
            [
                ("checkout", FORK, "14f489ea63a3b8f9601db8a089b1fa6fe75ac2d2"),
                ("--editable", "/opt/vllm-fork"),
            ],
        ),
    ],
)
def test_what_a_manual_installs_vllm_with(release: str, way: str, wanted: list[tuple[str, ...]]) -> None:
    recipe = made(release, way=way)
    found = [at(recipe, words) for words in wanted]
    assert found == sorted(found)


@pytest.mark.parametrize(("release", "base"), [("1.16", "1.16.0"), ("1.18", "1.18.0"), ("1.21", "1.21.3")])
def test_the_base_is_the_image_that_the_manual_pulls(release: str, base: str) -> None:
    assert entry(release).image["path"].startswith(f"gaudi-docker/{base}/ubuntu22.04/habanalabs/pytorch-installer-")


def test_what_the_manuals_install_for_links_and_for_a_measurement() -> None:
    """000 and 001, 1.2.1: libfabric and hccl_ofi_wrapper with two variables; hccl_demo and make."""
    recipe = made("1.21", ("host_nics",))
    order = [
        at(recipe, ("checkout", "https://github.com/HabanaAI/hccl_demo")),
        at(recipe, ("make", "/opt/hccl_demo")),
        at(recipe, ("checkout", "https://github.com/ofiwg/libfabric")),
        at(recipe, ("libfabric", "/opt/src/libfabric")),
        at(recipe, ("checkout", "https://github.com/HabanaAI/hccl_ofi_wrapper")),
        at(recipe, ("hccl_ofi_wrapper", "/opt/src/hccl_ofi_wrapper")),
    ]
    assert order == sorted(order)
    assert "ENV LIBFABRIC_ROOT=/opt/libfabric\n" in dockerfile(recipe)
    assert "ENV LD_LIBRARY_PATH=/opt/libfabric/lib" in dockerfile(recipe)
    # libfabric is of 1.20 or later.
    assert str(entry("1.21").pins["libfabric"].reference) == "v1.22.0"


def test_what_the_manuals_install_for_pictures_and_for_sound() -> None:
    """000 and 001, 1.4: pillow gone, Pillow-SIMD compiled for AVX2. 001, 3.4: vllm[audio], here never upgraded."""
    recipe = made("1.22", ("audio", "pillow_simd"))
    assert at(recipe, ("--editable", "/opt/vllm-fork[audio]")) < at(recipe, ("pillow_simd", "11.3.0.post0"))
    assert not [said for said in done(recipe) if {"-U", "--upgrade"} & set(said)]


def test_the_mirrors_of_the_manuals_are_there_to_be_taken() -> None:
    """000 and 001, 1.4: pip config set global.index-url; each manual has another one."""
    example = (ROOT / "inventories/example/group_vars/gaudi_nodes/main.yml").read_text(encoding="utf-8")
    shown = re.findall(r"^# (serving_image_python_indexes: .*)", example, re.MULTILINE)
    indexes = [yaml.safe_load(line)["serving_image_python_indexes"] for line in shown]
    assert indexes == [["https://pypi.tuna.tsinghua.edu.cn/simple/"], ["https://mirrors.aliyun.com/pypi/simple/"]]
    for index in indexes:
        assert f"index-url = {index[0]}\n" in pip_config(index)


def test_the_page_names_what_is_built_for_each_release() -> None:
    rows = [line.split(" | ") for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if ", PyTorch 2" in line]
    listed = {name: row for row in rows for name in row[0].removeprefix("| ").split(", ")}
    assert list(listed) == releases.names()
    for name, (_, base, vllm) in listed.items():
        image, pins = entry(name).image, entry(name).pins
        torch = image["path"].rpartition("pytorch-installer-")[2]
        assert base == f"{image['tag']}, PyTorch {torch}", name
        # A tag needs no commit.
        for pin in (pins[known] for known in ("vllm_fork", "vllm", "vllm_gaudi") if known in pins):
            assert (pin.commit[:9] if " at " in vllm else f"`{pin.reference}`") in vllm, name
        for known in ("vllm_hpu_extension", "neural_compressor"):
            assert (known.replace("_", "-") in vllm) == (known in pins), name


def test_the_page_names_every_option_of_a_site() -> None:
    options = yaml.safe_load((ROOT / "roles/serving_image/meta/argument_specs.yml").read_text(encoding="utf-8"))
    # What a playbook hands over.
    handed = {"serving_image_references", "serving_image_plans", "serving_image_release"}
    text = DOCUMENT.read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:serving_image|gaudi)_[a-z_]+", text))
    assert set(options["argument_specs"]["main"]["options"]) - handed - named == set()


def test_the_page_has_a_line_for_each_of_them() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for place in ("000 and 001, §1.2.1", "000, §1.4", "001, §1.4", "000 and 001, §3.1.2", "001, §3.4", "002", "004"):
        assert f"\n| {place} |" in text, place


def test_the_page_says_which_releases_have_which_part() -> None:
    builds = {name: entry(name).build for name in releases.names() if not name.endswith("-2025.11")}

    def named(key: str, there: bool) -> str:
        *first, last = (name for name, build in builds.items() if bool(getattr(build, key)) == there)
        return " and ".join([", ".join(first), last] if first else [last])

    rows = {line.split("`")[1]: line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if "| `" in line}
    assert f"; not on {named('audio_extra', there=False)} |" in rows["audio"]
    assert f"; not on {named('benchmark', there=False)} |" in rows["benchmark"]
    assert f", on {named('pillow_simd', there=True)} |" in rows["pillow_simd"]


# What the manuals pull for each release, all with the tag latest: Gaudi software and PyTorch.
PULLED = {
    "1.16": ("004", "1.16.0", "2.2.0"),
    "1.18": ("002", "1.18.0", "2.4.0"),
    "1.21": ("000", "1.21.3", "2.6.0"),
    "1.22": ("001", "1.21.3", "2.6.0"),
    "deepseek-r1": ("001", "1.21.3", "2.6.0"),
}


def test_the_page_says_where_a_base_image_differs_from_the_manuals() -> None:
    _, _, page = DOCUMENT.read_text(encoding="utf-8").partition("Our base images differ from the manuals'")
    points = [" ".join(point.split()) for point in page.partition("\n### ")[0].split("\n* ")]
    assert all(entry(release).image["tag"] not in ("", "latest") for release in PULLED)
    differing = set()
    for release, (manual, software, pytorch) in PULLED.items():
        image = entry(release).image
        ours = (image["tag"].partition("-")[0], image["path"].rpartition("pytorch-installer-")[2])
        if ours == (software, pytorch):
            continue
        differing.add(release)
        (point,) = [point for point in points if f"Manual {manual} " in point and f"Release {release} " in point]
        assert all(version in point for version in {software, pytorch} ^ set(ours)), (release, ours)
    assert differing == {"1.16", "1.22"}
