"""What simulated images are built from: commits that whoever builds from them can name."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.gaudi.image.inside import INC_CALIBRATION_PROGRAM, VENDOR

from simulator import apt, images, sources, vault, wheels
from simulator.settings import ROOT

SCENARIO = ROOT / "molecule" / "images" / "vars" / "site.yml"
INVENTORY = ROOT / "inventories" / "simulated" / "group_vars" / "gaudi_nodes.yml"
PLUGIN = SCENARIO.with_name("plugin.yml")
SITES = {"scenario": SCENARIO, "inventory": INVENTORY}


def commits(site: dict[str, Any]) -> dict[str, str]:
    """The commits of the repositories that a site builds from, by the names of their pins."""
    made = sources.commits()
    fork = str(site["serving_image_pins"].get("vllm_fork", {}).get("repository", ""))
    other = "HabanaAI/vllm-fork" if fork.endswith(f"/{sources.SERVING}") else sources.SERVING
    named = {pin: made[name] for name, pin in sources.REPOSITORIES.items() if name != other}
    # The stand-in for the program that measures lies in the fork that serves.
    return {**named, "inc_calibration": made[sources.SERVING]}


@pytest.mark.parametrize("path", [*SITES.values(), PLUGIN], ids=[*SITES, "plugin"])
def test_who_builds_names_the_commits_of_the_repositories(path: Path) -> None:
    site = yaml.safe_load(path.read_text())
    named = {name: pin["commit"] for name, pin in site["serving_image_pins"].items()}
    made = commits(site)
    assert named == {pin: made[pin] for pin in named}


@pytest.mark.parametrize("path", SITES.values(), ids=SITES)
def test_who_builds_asks_mirrors_alone(path: Path) -> None:
    site = yaml.safe_load(path.read_text())
    assert list(site["serving_image_git_mirrors"].values()) == [f"http://{sources.GIT}:{sources.GIT_PORT}/"]
    index = f"{sources.INDEX}:{sources.INDEX_PORT}/simple"
    assert all(re.search(rf"[/@]{re.escape(index)}$", said) for said in site["serving_image_python_indexes"])
    assert site["serving_image_base"].endswith(f"/{sources.BASE_PATH}:{sources.BASE_TAG}")


def test_the_scenario_has_the_account_that_a_private_repository_asks_for() -> None:
    site, inventory = (yaml.safe_load(path.read_text()) for path in (SCENARIO, INVENTORY))
    (account,) = site["serving_image_git_accounts"]
    assert (account["address"], account["password"]) == (f"http://{sources.GIT}:{sources.GIT_PORT}", sources.GIT_TOKEN)
    asked = {name for name, pin in sources.REPOSITORIES.items() if pin in site["serving_image_pins"]}
    assert set(sources.PRIVATE) <= asked <= set(sources.REPOSITORIES)
    # The demo has no account.
    assert "serving_image_git_accounts" not in inventory
    assert sources.SERVING not in sources.PRIVATE
    assert {sources.REPOSITORIES[name] for name in sources.PRIVATE} == {"vllm_fork"}


def test_the_scenario_asks_mirrors_of_the_registry_and_of_the_system_s_packages() -> None:
    site = yaml.safe_load(SCENARIO.read_text())
    assert site["serving_image_base"].startswith(f"{vault.MIRROR}/")
    address = f"http://{sources.PACKAGES}:{sources.PACKAGES_PORT}"
    assert site["serving_image_apt_sources"] == f"deb {address} {apt.SUITE} main\n"
    assert site["serving_image_apt_key"] == "{{ simulator_apt_key }}"


def test_the_inventory_builds_from_the_fork_that_serves_its_release() -> None:
    site = yaml.safe_load(INVENTORY.read_text())
    assert site["serving_image_pins"]["vllm_fork"]["repository"].endswith(f"{sources.GIT_PORT}/{sources.SERVING}")
    assert (
        site["gaudi_release"]
        == sources.SERVING_RELEASE
        == sources.files(sources.SERVING)["release"].content.decode().strip()
    )


def test_every_repository_is_one_that_an_image_is_built_from() -> None:
    assert sorted(path for path in sources.FOLDER.iterdir() if path.is_dir()) == sorted(
        map(sources.folder, sources.REPOSITORIES)
    )


@pytest.mark.parametrize("tag", [sources.BASE_TAG, sources.PLUGIN_BASE_TAG])
def test_the_base_image_has_the_vendor_s_packages_real_where_the_public_index_has_them(tag: str) -> None:
    version = tag.replace("-", ".")
    lines = (images._SOURCES / "vendor" / "requirements" / f"{tag}.txt").read_text().splitlines()
    real = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert real.pop("neural-compressor-pt")
    assert set(real.values()) == {version}
    stand_ins = {name.split("-")[0].replace("_", "-") for name in wheels.vendor(version)}
    assert sorted([*real, *stand_ins]) == sorted(VENDOR)


def test_a_stand_in_wheel_says_so_and_is_the_same_every_time() -> None:
    name, content = wheels.wheel("habana-torch-plugin", "1.22.2.32")
    assert name == "habana_torch_plugin-1.22.2.32-py3-none-any.whl"
    assert wheels.wheel("habana-torch-plugin", "1.22.2.32")[1] == content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        metadata = archive.read("habana_torch_plugin-1.22.2.32.dist-info/METADATA").decode()
    assert "Name: habana-torch-plugin\nVersion: 1.22.2.32\nSummary: Simulated" in metadata


def test_the_program_that_measures_finds_what_it_calls_in_a_checkout(tmp_path: Path) -> None:
    site = yaml.safe_load(INVENTORY.read_text())
    pins = site["serving_image_pins"]
    assert pins["inc_calibration"] == pins["vllm_fork"]
    for path, file in sources.files(sources.SERVING).items():
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.content)
    program = tmp_path / INC_CALIBRATION_PROGRAM
    run = subprocess.run([sys.executable, str(program), "--help"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "run_example_tp.py" in run.stdout
