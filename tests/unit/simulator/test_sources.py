"""What simulated images are built from: commits that whoever builds from them can name."""

from __future__ import annotations

import io
import zipfile

import yaml

from simulator import sources, wheels
from simulator.settings import ROOT


def test_the_scenario_names_the_commits_of_the_repositories() -> None:
    site = yaml.safe_load((ROOT / "molecule" / "images" / "vars" / "site.yml").read_text())
    assert {name: pin["commit"] for name, pin in site["serving_image_pins"].items()} == sources.commits()


def test_the_scenario_asks_mirrors_alone() -> None:
    site = yaml.safe_load((ROOT / "molecule" / "images" / "vars" / "site.yml").read_text())
    assert list(site["serving_image_git_mirrors"].values()) == [f"http://{sources.GIT}:{sources.GIT_PORT}/"]
    assert all(f"@{sources.INDEX}:{sources.INDEX_PORT}/" in index for index in site["serving_image_python_indexes"])
    assert site["serving_image_base"].endswith(f"/{sources.BASE_PATH}:{sources.BASE_TAG}")


def test_every_repository_is_one_that_an_image_is_built_from() -> None:
    assert sorted(path.name for path in sources.FOLDER.iterdir() if path.is_dir()) == sorted(
        name.partition("/")[2] for name in sources.REPOSITORIES
    )


def test_a_stand_in_wheel_says_so_and_is_the_same_every_time() -> None:
    name, content = wheels.wheel("habana-torch-plugin", "1.22.2.32")
    assert name == "habana_torch_plugin-1.22.2.32-py3-none-any.whl"
    assert wheels.wheel("habana-torch-plugin", "1.22.2.32")[1] == content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        metadata = archive.read("habana_torch_plugin-1.22.2.32.dist-info/METADATA").decode()
    assert "Name: habana-torch-plugin\nVersion: 1.22.2.32\nSummary: Simulated" in metadata
