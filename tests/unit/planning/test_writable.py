"""Every place a server may write to is named in its plan, with size and mode, and nothing leads elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.gaudi.base.places import is_below
from ansible.module_utils.gaudi.catalogue.surface import ServerSurface
from ansible.module_utils.gaudi.pages.page import page
from ansible.module_utils.gaudi.planning.writable import LEADING, SCRATCH, VARIABLES

from tests.golden.serving_cases import vendor

from .test_releases import RELEASES

# What libraries of these servers write below, whoever serves: a cache, a log, a configuration.
WRITTEN = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "HABANA_LOGS")
CACHES = ("NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def variables(plan: dict[str, Any]) -> dict[str, str]:
    """The server's environment, as the node puts it together."""
    return {**plan["environment"], **plan["container"]["environment"]}


def places(plan: dict[str, Any]) -> list[str]:
    """The directories that can be written to."""
    box = plan["container"]
    return [at["path"] for at in box["tmpfs"]] + [at["target"] for at in box["mounts"] if not at["read_only"]]


@pytest.mark.parametrize("weights", ["/models/x", "Qwen/Qwen3-8B"])
@pytest.mark.parametrize("release", RELEASES)
def test_what_libraries_write_has_a_place(release: str, weights: str) -> None:
    plan = vendor.plan_request(release, {"instance": "a", "weights": weights})
    assert plan["container"]["read_only"] is True
    for name in (*WRITTEN, *CACHES):
        value = variables(plan)[name]
        assert any(is_below(value, place) for place in places(plan)), f"{name}={value}"
    for place in plan["container"]["tmpfs"]:
        assert place["size_mib"] > 0
        assert int(place["mode"], 8) & 0o700 == 0o700
    known = ServerSurface(vendor.catalogue(release).release)
    assert [name for name in VARIABLES if not known.reads(name)] == []


def test_weights_of_a_hub_stay_where_they_outlive_the_container() -> None:
    plan = vendor.plan_request("1.22", {"weights": "Qwen/Qwen3-8B"})
    assert variables(plan)["HF_HOME"] == "/data/models/.hub"


@pytest.mark.parametrize("name", LEADING)
def test_a_variable_that_leads_elsewhere_is_refused(name: str) -> None:
    request = {"instance": "a", "weights": "/data/models/x", "extra_environment": {name: "/data/models/x/own"}}
    said = vendor.plan_request("1.22", request)
    if name not in vendor.catalogue("1.22").release.variables and name.startswith("VLLM_"):
        # Left out with a warning, as every variable that the release does not read.
        assert name not in variables(said)
        return
    assert f"extra_environment sets {name} to '/data/models/x/own', where the server cannot write" in said["refused"]
    assert "below /tmp, /run/gaudi-serving/home, /var/log/habana_logs or /data/recipe_cache/a" in said["refused"]
    assert f"leave {name} out" in said["refused"]


@pytest.mark.parametrize("value", [f"{SCRATCH}/x", "/data/recipe_cache/a/hf", "./x", f"/data/..{SCRATCH}/x"])
def test_a_variable_that_leads_to_a_place_is_taken(value: str) -> None:
    plan = vendor.plan_request("1.22", {"instance": "a", "weights": "/m/x", "extra_environment": {"HF_HOME": value}})
    assert variables(plan)["HF_HOME"] == value
    assert variables(plan)["HOME"] == VARIABLES["HOME"]


@pytest.mark.parametrize("value", [f"{SCRATCH}/../data", "../data", f"{SCRATCH}orary", "/"])
def test_no_way_around(value: str) -> None:
    answer = vendor.plan_request("1.22", {"weights": "/m/x", "extra_environment": {"TMPDIR": value}})
    assert "where the server cannot write" in answer["refused"]


def test_the_page_shows_the_places() -> None:
    plan = vendor.plan_request("1.22", {"instance": "a", "weights": "/m/x"})
    text = page([plan], vendor.topology("oam8"))
    for line in (
        f"{SCRATCH} (memory, 8 GiB at most, mode 1777)",
        "/run/gaudi-serving/home (memory, 8 GiB at most, mode 0700)",
        "/var/log/habana_logs (memory, 1 GiB at most, mode 0700)",
        "/data/recipe_cache/a (a directory of the node)",
        "shm (memory, 16 GiB at most, mode 1777)",
        "HABANA_LOGS=/var/log/habana_logs",
    ):
        assert line in text


def refused(**options: Any) -> str:
    """The sentence a request is refused with."""
    answer = vendor.plan_request("1.22", {"instance": "a", "weights": "/data/models/x", **options})
    return str(answer.get("refused", ""))


@pytest.mark.parametrize("name", ["HF_HOME", "HABANA_LOGS", "HOME"])
def test_a_tilde_or_nothing_is_no_place(name: str) -> None:
    for value in ("~/logs", "~root/x", "~"):
        assert "Write the absolute path" in refused(extra_environment={name: value})
    assert f"{name} to '', which names no place" in refused(extra_environment={name: ""})


def test_the_nodes_shared_memory_is_refused_for_its_own_reason() -> None:
    said = refused(extra_environment={"HF_HOME": "/dev/shm/x"})  # noqa: S108 - refused
    assert "outlives the container" in said
    assert "read only" not in said


def test_the_recipes_directory_is_a_place() -> None:
    said = refused(extra_environment={"PT_HPU_RECIPE_CACHE_CONFIG": "/data/models/x/r,True,8192"})
    assert "PT_HPU_RECIPE_CACHE_CONFIG, whose directory is '/data/models/x/r', where the server cannot write" in said
    assert said.endswith("use the option recipe_cache.")
    assert not refused(extra_environment={"PT_HPU_RECIPE_CACHE_CONFIG": "/tmp/r,True,8192"})  # noqa: S108
    assert not refused(recipe_cache={"directory": "/data/cache/b"})


@pytest.mark.parametrize("words", ["--download-dir /data/x", "--download-dir=/data/x", "--download_dir ~/x"])
def test_a_place_to_download_to_is_a_place(words: str) -> None:
    assert "extra_args sets --download-dir to" in refused(extra_args=words.split())
    assert not refused(extra_args=["--download-dir", f"{SCRATCH}/x", "--seed", "1"])


@pytest.mark.parametrize(
    "name", ["HF_ASSETS_CACHE", "HF_XET_CACHE", "PROMETHEUS_MULTIPROC_DIR", "TORCH_EXTENSIONS_DIR", "HF_TOKEN_PATH"]
)
def test_places_of_libraries_are_known(name: str) -> None:
    said = refused(extra_environment={name: "/data/models/x/own"})
    # The file of a token is refused before, as a secret.
    assert ("secrets never go" if name == "HF_TOKEN_PATH" else "where the server cannot write") in said
