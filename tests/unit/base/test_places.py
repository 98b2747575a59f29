"""Directories a request names: in their shortest form, and never those of the system or of the image."""

from __future__ import annotations

import posixpath
from typing import Any

import pytest
from ansible.module_utils.gaudi.base.places import SYSTEM, check_place, normal
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.planning.many import plan_all
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.serving_cases import vendor

FORK = "/opt/vllm-fork"
TMP = "/tmp"  # noqa: S108 - a name to check, nothing is written there
WRONG = [
    *("/", "//", "/.", "/..", "/data/..", "/data/../etc", "/etc", "//etc//", "/etc/ssl", "/usr", "/usr/share/models"),
    *("/proc", "/proc/1/root", "/sys", "/dev", "/dev/mapper", "/run", "/var/run/docker.sock", "/var", "/var/lib"),
    *("/var/lib/docker", "/var/lib/docker/volumes/x", "/var/lib/containerd", "/var/lib/gaudi-serving", "/boot"),
    *("/bin", "/sbin", "/lib", "/lib64", "/opt", "/opt/habanalabs", "/home", "/root", TMP, FORK, f"{FORK}/scripts"),
    # Everybody may make it before we do.
    *(f"{TMP}/x", f"/var{TMP}/models/x"),
]
REFUSED = ("directory_is_root", "directory_of_system", "directory_hides_system", "directory_of_others")
RIGHT = [
    *("/data/models/x", "/srv/x", "/mnt/nfs/models/x", "/home/me/models/x", "/opt/models/x", "/etcetera", "/usr2/x"),
    *("/var/lib/models/x", "/var/cache/recipes", "/opt/vllm-fork-2", "/models/..hidden", "/root/models"),
]


def plan(release: str, **options: Any) -> dict[str, Any]:
    return vendor.plan_request(release, {"weights": "/models/QwQ-32B", **options})


def named(option: str, path: str) -> dict[str, Any]:
    """A request option that names a directory, or a file in it."""
    if option == "recipe_cache as a mapping":
        return {"recipe_cache": {"directory": path, "size": 5}}
    return {option: f"{path}/maxabs_quant_g2.json" if option == "quantization_config" else path}


OPTIONS = ["weights", "recipe_cache", "recipe_cache as a mapping", "quantization_config"]


@pytest.mark.parametrize("option", OPTIONS)
def test_a_directory_of_the_system_or_the_image(option: str) -> None:
    answers = {path: plan("1.22", **named(option, path)) for path in WRONG}
    assert not [path for path, answer in answers.items() if answer.get("refused_id") not in REFUSED]
    # Of several directories the sentence names the option, too.
    assert not [path for path, answer in answers.items() if option.split(" ", maxsplit=1)[0] not in answer["refused"]]


READ = ["weights", "quantization_config"]
# Where a server may not write, although it may read there; the weights of these plans are in /data/models.
ONLY_READ = [path for path in RIGHT if not path.startswith(("/data/", "/srv/", "/mnt/", "/var/cache/"))]
FOR_DATA = [*(path for path in RIGHT if path not in ONLY_READ), "/vllm_cache/x", "/data/cache/"]


@pytest.mark.parametrize("option", OPTIONS)
def test_a_directory_of_ones_own(option: str) -> None:
    refused, elsewhere = {}, {}
    for path in RIGHT if option in READ else FOR_DATA:
        answer = plan("1.22", **named(option, path))
        if "refused" in answer:
            refused[path] = answer["refused"]
        elif {mount["source"]: mount["target"] for mount in answer["container"]["mounts"]}.get(path) != path:
            elsewhere[path] = answer["container"]["mounts"]
    assert not refused
    assert not elsewhere


OF_OTHERS = ["/root/.ssh", "/home/me/.ssh", "/var/spool/cron/crontabs", "/var/lib/postgresql", "/data/../root/.ssh"]


@pytest.mark.parametrize("option", ["recipe_cache", "recipe_cache as a mapping"])
def test_a_server_writes_only_below_a_directory_for_data(option: str) -> None:
    answers = {path: plan("1.22", **named(option, path)) for path in (*ONLY_READ, *OF_OTHERS)}
    assert not [path for path, answer in answers.items() if answer.get("refused_id") != "not_for_data"]
    assert not [path for path, answer in answers.items() if "recipe_cache" not in answer["refused"]]


@pytest.mark.parametrize(
    ("root", "path", "allowed"),
    [
        ("/nvme/models", "/nvme/recipes", True),
        ("/nvme/models", "/nvme/models/recipes", True),
        ("/nvme/models", "/other/recipes", False),
        ("/models", "/models/recipes", True),
        ("/models", "/recipes", False),
        # What lies beside weights in somebody's home, or in a directory of the system, is not for data.
        ("/root/models", "/root/models/recipes", True),
        ("/root/models", "/root/.ssh", False),
        ("/home/me/models", "/home/me/.ssh", False),
        ("/var/lib/models", "/var/lib/postgresql", False),
        ("/opt/models", "/opt/cache", False),
        ("/", "/root/.ssh", False),
    ],
)
def test_a_site_names_its_directory_for_data_by_its_weights(root: str, path: str, allowed: bool) -> None:
    request = {"model": "qwq-32b", "recipe_cache": path}
    (answer,) = plan_all([request], vendor.catalogue("1.22", "qwq-32b"), vendor.topology("oam8"), weights_root=root)
    assert answer.get("refused_id") == (None if allowed else "not_for_data")


def test_a_file_of_the_image_needs_no_mount() -> None:
    file = f"{FORK}/scripts/quant_configs/inc_quant_per_channel_with_fp8kv_config.json"
    answer = plan("deepseek-r1", dtype="fp8", quantization_config=file)
    assert answer["environment"]["QUANT_CONFIG"] == file
    assert not any(mount["target"].startswith(f"{FORK}/scripts/quant") for mount in answer["container"]["mounts"])


@pytest.mark.parametrize("root", ["/", "/etc", "/usr/share", "/data/../proc", FORK, "/var/lib/docker"])
@pytest.mark.parametrize("request_", [{"model": "qwq-32b"}, {"weights": "Qwen/Qwen3-8B"}])
def test_the_root_of_all_weights(root: str, request_: dict[str, Any]) -> None:
    found = vendor.catalogue("1.22", request_.get("model"))
    (answer,) = plan_all([request_], found, vendor.topology("oam8"), weights_root=root)
    if root == "/" and "model" in request_:
        # A directory right below the root is the site's own business, as long as it is only read.
        assert "refused" not in answer
    else:
        assert "weights_root" in answer["refused"]


@pytest.mark.parametrize(
    ("weights", "cache"),
    [("/data/x", "/data/x"), ("/data/x", "/data/x/cache"), ("/data/x", "/data"), ("/data/x/", "/data//x")],
)
def test_a_cache_and_weights_that_hold_one_another(weights: str, cache: str) -> None:
    refused = plan("1.22", weights=weights, recipe_cache=cache)["refused"]
    assert "recipe_cache" in refused
    assert "beside" in refused
    assert "refused" not in plan("1.22", weights="/data/x", recipe_cache="/data/xy")


@pytest.mark.parametrize(
    ("written", "shortest"),
    [
        ("/data//models/QwQ-32B", "/data/models/QwQ-32B"),
        ("//data/models/./QwQ-32B", "/data/models/QwQ-32B"),
        ("/data/old/../models/QwQ-32B", "/data/models/QwQ-32B"),
        ("/data/models/QwQ-32B/", "/data/models/QwQ-32B/"),
    ],
)
def test_every_place_sees_the_same_path(written: str, shortest: str) -> None:
    answer = plan("1.21", weights=written)
    assert vendor.options(answer["arguments"])["--model"] == shortest
    assert answer["requires"]["weights_path"] == shortest
    assert shortest in [mount["source"] for mount in answer["container"]["mounts"]]


names = st.lists(
    st.sampled_from([".", "..", "", "a", "data", "etc", "usr", "opt", "vllm-fork", " ", "proc"]), max_size=6
)


@given(names)
def test_what_is_accepted_hides_nothing(parts: list[str]) -> None:
    path = normal("/" + "/".join(parts))
    try:
        check_place(path, "x", FORK)
    except Refusal as refusal:
        assert refusal.id in REFUSED
        return
    assert ".." not in path.split("/")
    assert "//" not in path
    assert path != "/"
    for place in (*SYSTEM, FORK):
        # Neither holds the other.
        assert posixpath.commonpath([path, place]) not in (path.rstrip("/"), place)
