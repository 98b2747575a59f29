"""What a scope's nodes are asked for: an image that is ready, or one that they build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from simulator import __main__ as command_line
from simulator import images, kernel, nodes, sources, supply, variants, vault, world
from simulator.settings import Scope, SimulatorError

READY = "vault.habana.ai/gaudi-serving/vllm:simulated-1"
Site = Callable[..., dict[str, object]]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of images that a vault was told to hold."""
    paths: list[str] = []
    for module, name in ((kernel, "record"), (nodes, "up"), (supply, "start"), (vault, "start")):
        monkeypatch.setattr(module, name, MagicMock())
    monkeypatch.setattr(sources, "start", lambda *_: paths.append(sources.BASE_PATH))
    monkeypatch.setattr(sources, "start_git", lambda *_: paths.append("git"))
    monkeypatch.setattr(images, "serving", lambda *_: "image:1")
    monkeypatch.setattr(images, "measuring", lambda *_: "image:2")
    monkeypatch.setattr(vault, "hold", lambda _client, _vault, _image, path, *_: paths.append(path))
    monkeypatch.setattr(world, "build", lambda *_: READY)
    monkeypatch.setattr(variants, "hold", lambda _vault, _path, tag, release, build: f"{tag}-{release}-of-{build}")
    return paths


@pytest.fixture
def site(held: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(Scope, "directory", tmp_path)

    def up(*releases: str, **how: Any) -> dict[str, object]:
        world.up(MagicMock(), Scope("x"), [], "gaudi2-oam8", print, releases, **how)
        return nodes.site(Scope("x"))

    return up


def test_nodes_take_the_built_image_from_the_vault(site: Site, held: list[str]) -> None:
    assert site("1.22") == {"serving_image_build": False, "serving_image_ref": READY}
    assert held == []


def test_buildable_nodes_are_asked_for_what_the_inventory_says(site: Site, held: list[str]) -> None:
    # Beside that the key of the packages for apt, which no image knows.
    assert [name for name in site("1.22", buildable=True) if not name.startswith("simulator_")] == []
    assert held == [sources.BASE_PATH]


def test_nodes_that_only_measure_have_a_vault_with_the_small_image_and_a_git_host(site: Site, held: list[str]) -> None:
    said = site("1.22", measuring=True)
    assert said == {
        "serving_image_build": False,
        "serving_image_ref": "vault.habana.ai/gaudi-serving/measuring:simulated",
    }
    assert held == [world.MEASURING, "git"]


def test_another_release_lies_ready_where_the_release_says(site: Site, held: list[str]) -> None:
    assert site("deepseek-r1") == {"serving_image_build": False}
    assert held == [world.image_name("deepseek-r1")[0]]


def test_one_reference_does_not_serve_two_releases(site: Site) -> None:
    with pytest.raises(SimulatorError, match=r"ask for 1\.22, deepseek-r1 in scopes of their own"):
        site("1.22", "deepseek-r1")


def test_what_builds_is_part_of_what_the_image_is_known_by() -> None:
    made_from = world._made_from()
    assert {"gaudi_nodes.yml", "catalog/releases/1.22.yml", "module_utils/gaudi/image/dockerfile.py"} <= set(made_from)
    assert "roles/serving_image/files/gaudi_image/context/steps.sh" in made_from


def test_a_release_with_the_plugin_is_made_from_the_built_image(site: Site, held: list[str]) -> None:
    assert site("1.24.1") == {
        "serving_image_build": False,
        "serving_image_ref": f"{READY}-1.24.1-of-1.24.1-482",
        "gaudi_release": "1.24.1",
    }
    assert held == []


def test_the_release_before_is_made_from_it_as_well(site: Site, held: list[str]) -> None:
    assert site("1.21", "1.22") == {
        "serving_image_build": False,
        "serving_image_ref": f"{READY}-1.21-of-1.21.3-57",
        "gaudi_release": "1.21",
        "simulator_images": {"1.21": f"{READY}-1.21-of-1.21.3-57", "1.22": READY},
    }
    assert held == []


def test_with_several_of_them_the_first_is_asked_for(site: Site) -> None:
    assert site("1.22", "1.24.1") == {
        "serving_image_build": False,
        "serving_image_ref": READY,
        "simulator_images": {"1.22": READY, "1.24.1": f"{READY}-1.24.1-of-1.24.1-482"},
    }


def test_another_system_reaches_the_nodes_and_what_they_fetch_from(site: Site) -> None:
    site("1.22", system="debian13")
    up, start = cast("MagicMock", nodes.up), cast("MagicMock", supply.start)
    assert up.call_args.kwargs["system"] == "debian13"
    assert start.call_args.args[-1] == "debian13"


def test_an_unknown_system_is_refused_with_those_that_are_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also from the environment, as Molecule gives it."""
    monkeypatch.setattr("sys.argv", ["simulator", "up"])
    monkeypatch.setenv("GAUDI_SIMULATOR_SYSTEM", "debian11")
    with pytest.raises(SystemExit):
        command_line.main()
    assert "'debian11'. Known: debian12, debian13." in capsys.readouterr().err
