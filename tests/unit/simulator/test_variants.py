"""The image of another release out of the built one: what its layer, configuration and manifest say."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from typing import cast

import pytest
from ansible.module_utils.gaudi.image.inside import VENDOR

from simulator import variants
from simulator.vault import Vault

CONFIG = "sha256:" + "0" * 64
BASE = {"mediaType": "layer", "size": 7, "digest": "sha256:" + "1" * 64}


class Registry:
    """A vault in memory, with the built image in it."""

    def __init__(self) -> None:
        manifest = {"mediaType": "manifest", "config": {"mediaType": "config", "digest": CONFIG}, "layers": [BASE]}
        configuration = {
            "rootfs": {"type": "layers", "diff_ids": ["sha256:2"]},
            "history": [{}],
            "config": {"Env": ["A=1"]},
        }
        self.held = {
            "gaudi/vllm/manifests/built": json.dumps(manifest).encode(),
            f"gaudi/vllm/blobs/{CONFIG}": json.dumps(configuration).encode(),
        }
        self.uploads = 0

    def digest(self, repository: str, tag: str) -> str | None:
        return "sha256:" if f"{repository}/manifests/{tag}" in self.held else None

    def get(self, path: str) -> bytes:
        return self.held[path]

    def put(self, path: str, content: bytes, kind: str) -> None:
        assert kind == "manifest"
        self.held[path] = content

    def upload(self, repository: str, content: bytes) -> str:
        self.uploads += 1
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.held[f"{repository}/blobs/{digest}"] = content
        return digest


@pytest.fixture
def registry() -> Registry:
    return Registry()


def hold(registry: Registry, release: str = "1.24.1", build: str = "1.24.1-482") -> str:
    return variants.hold(cast("Vault", registry), "gaudi/vllm", "built", release, build)


def test_a_layer_more_makes_it_another_release(registry: Registry) -> None:
    tag = hold(registry)
    assert tag.startswith("built-1.24.1-")
    manifest = json.loads(registry.held[f"gaudi/vllm/manifests/{tag}"])
    assert manifest["layers"][0] == BASE
    configuration = json.loads(registry.held[f"gaudi/vllm/blobs/{manifest['config']['digest']}"])
    assert configuration["config"] == {"Env": ["A=1"]}
    packed = registry.held[f"gaudi/vllm/blobs/{manifest['layers'][1]['digest']}"]
    assert manifest["layers"][1]["size"] == len(packed)
    tar = gzip.decompress(packed)
    assert configuration["rootfs"]["diff_ids"] == ["sha256:2", f"sha256:{hashlib.sha256(tar).hexdigest()}"]
    assert len(configuration["history"]) == 2
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        names = archive.getnames()
        release = archive.extractfile("opt/vllm-fork/release")
        assert release is not None
        assert release.read() == b"1.24.1\n"
    packages = "opt/venv/lib/python3.11/site-packages"
    for name in (distribution.replace("-", "_") for distribution in VENDOR):
        assert f"{packages}/{name}-1.24.1.482.dist-info/METADATA" in names
        assert f"{packages}/.wh.{name}-1.22.2.32.dist-info" in names
    assert {f"opt/vllm-fork/surface/{name}.json" for name in ("1.24.1", "buckets", "common")} <= set(names)


def test_it_is_made_once(registry: Registry) -> None:
    first = hold(registry)
    uploads = registry.uploads
    assert hold(registry) == first
    assert registry.uploads == uploads
    assert hold(registry, "1.24", "1.24.0-1007") != first
