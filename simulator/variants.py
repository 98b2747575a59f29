"""The image of another release, 1.21 or one with the plugin: the built one, with one small layer more.

The real vLLM for CPUs is behind the command line of every release, so nothing is built again. The layer says which
release it is, has what that one knows, and the versions of the vendor's packages; layer, configuration and manifest go
to the vault as they are.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zipfile
from typing import Any

from simulator import context, sources, wheels
from simulator.context import ContextFile, Files
from simulator.vault import Vault

# Where the built image has the front, and its packages.
_FRONT = "opt/vllm-fork"
_PACKAGES = "opt/venv/lib/python3.11/site-packages"
# Distributions whose version is the release's. Of those that the built image has for real the code stays as it is.
_VENDOR = ("habana-torch-plugin", "habana-torch-dataloader", "habana-media-loader", "habana-pyhlml")
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def layer(release: str, build: str) -> Files:
    """What makes the built image that of another release; ``build`` is the vendor's, such as 1.24.1-482."""
    files = {f"{_FRONT}/release": context.text(f"{release}\n")}
    files |= {f"{_FRONT}/{path}": file for path, file in sources.surface(release).items()}
    for name in _VENDOR:
        _, packed = wheels.wheel(name, build.replace("-", "."))
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            files |= {f"{_PACKAGES}/{path}": ContextFile(archive.read(path)) for path in archive.namelist()}
        # As a layer says that something below it is gone (OCI image specification, whiteouts).
        built = f"{name.replace('-', '_')}-{sources.BASE_TAG.replace('-', '.')}.dist-info"
        files[f"{_PACKAGES}/.wh.{built}"] = ContextFile(b"")
    return files


def hold(vault: Vault, repository: str, built: str, release: str, build: str) -> str:
    """Have the vault hold the image of a release beside the built one of that tag; give its tag."""
    tar = context.archive(layer(release, build))
    tag = f"{built}-{release}-{hashlib.sha256(tar).hexdigest()[:8]}"
    if vault.digest(repository, tag) is not None:
        return tag
    manifest = json.loads(vault.get(f"{repository}/manifests/{built}"))
    configuration = json.loads(vault.get(f"{repository}/blobs/{manifest['config']['digest']}"))
    configuration["rootfs"]["diff_ids"].append(f"sha256:{hashlib.sha256(tar).hexdigest()}")
    configuration["history"].append({"created_by": f"gaudi-serving-simulator: release {release}"})
    manifest["layers"].append(_blob(vault, repository, gzip.compress(tar, mtime=0), _LAYER))
    manifest["config"] = _blob(
        vault, repository, json.dumps(configuration).encode(), str(manifest["config"]["mediaType"])
    )
    vault.put(f"{repository}/manifests/{tag}", json.dumps(manifest).encode(), str(manifest["mediaType"]))
    return tag


def _blob(vault: Vault, repository: str, content: bytes, kind: str) -> dict[str, Any]:
    """Have the vault hold a blob; give what a manifest says of it."""
    return {"mediaType": kind, "size": len(content), "digest": vault.upload(repository, content)}
