"""The simulated hub, as the real client library sees it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import HfApi, constants, errors, hf_hub_download, snapshot_download

from simulator.hub.server import HubFault, SimulatedHub
from tests.unit.weights.models import MODEL


@pytest.fixture(autouse=True)
def no_xet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated hub speaks plain HTTP, as every mirror does."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)


def test_the_real_client_downloads_a_whole_snapshot(hub: SimulatedHub, tmp_path: Path) -> None:
    snapshot_download(MODEL, endpoint=hub.endpoint, local_dir=tmp_path / "there", token=False)
    for file in (tmp_path / "hub").rglob("*"):
        if file.is_file():
            assert (tmp_path / "there" / file.relative_to(tmp_path / "hub")).read_bytes() == file.read_bytes()


def test_the_real_client_reads_sizes_and_checksums(hub: SimulatedHub, tmp_path: Path) -> None:
    info = HfApi(endpoint=hub.endpoint, token=False).model_info(MODEL, files_metadata=True)
    by_name = {sibling.rfilename: sibling for sibling in info.siblings or []}
    shard = by_name["model-00001-of-00003.safetensors"]
    content = (tmp_path / "hub/model-00001-of-00003.safetensors").read_bytes()
    assert shard.lfs is not None
    assert (shard.size, shard.lfs.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    config = (tmp_path / "hub/config.json").read_bytes()
    git_hash = hashlib.sha1(b"blob %d\0" % len(config) + config, usedforsecurity=False)
    assert by_name["config.json"].blob_id == git_hash.hexdigest()
    assert by_name["config.json"].lfs is None


def test_the_real_client_lists_the_tree(hub: SimulatedHub) -> None:
    names = {entry.path for entry in HfApi(endpoint=hub.endpoint, token=False).list_repo_tree(MODEL, recursive=True)}
    assert {"config.json", "figures/speed.png", "pytorch_model.bin"} <= names


def test_the_real_client_continues_after_a_cut(hub: SimulatedHub, tmp_path: Path) -> None:
    hub.faults = [HubFault(name="model-00002*", cut_after=200_000)]
    path = hf_hub_download(
        MODEL, "model-00002-of-00003.safetensors", endpoint=hub.endpoint, local_dir=tmp_path / "there", token=False
    )
    assert Path(path).read_bytes() == (tmp_path / "hub/model-00002-of-00003.safetensors").read_bytes()
    # It keeps whole pieces of 10 MB only, so it begins again; but it comes back.
    assert sum(seen.method == "GET" and seen.where == "delivery" for seen in hub.seen) == 2


@pytest.mark.parametrize(
    ("flags", "name", "revision", "error"),
    [
        ({"gated": True}, MODEL, "main", errors.GatedRepoError),
        ({"private": True}, MODEL, "main", errors.RepositoryNotFoundError),
        ({}, "maker/Nothing", "main", errors.RepositoryNotFoundError),
        ({}, MODEL, "0" * 40, errors.RevisionNotFoundError),
    ],
)
def test_the_real_client_understands_refusals(
    hub: SimulatedHub, flags: dict[str, bool], name: str, revision: str, error: type[Exception]
) -> None:
    for key, value in flags.items():
        setattr(hub.repositories[MODEL], key, value)
    with pytest.raises(error):
        HfApi(endpoint=hub.endpoint, token=False).model_info(name, revision=revision)


def test_unsigned_addresses_of_the_delivery_network_are_refused(hub: SimulatedHub) -> None:
    sha256 = hub.repositories[MODEL].commits[hub.repositories[MODEL].main]["pytorch_model.bin"].sha256
    assert httpx2.get(f"{hub.delivery}/{sha256}?name={MODEL}", trust_env=False).status_code == 403
