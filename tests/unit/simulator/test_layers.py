"""The layers of the serving image are kept whole, for one image, and given to engines that are new."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import docker
import pytest

from simulator import host, images, layers
from simulator.settings import SimulatorError


class Volume:
    """A volume of an engine, as a directory."""

    def __init__(self, directory: Path, labels: dict[str, str]) -> None:
        self.directory, self.attrs = directory, {"Labels": labels}

    def remove(self) -> None:
        shutil.rmtree(self.directory)


class DockerStandIn:
    """As much of a Docker client as layers.py asks; what it runs, it runs here."""

    def __init__(self, root: Path) -> None:
        self.root, self.containers, self.volumes = root, self, self
        self.made: dict[str, Volume] = {}

    def info(self) -> dict[str, str]:
        return {"DockerRootDir": str(self.root)}

    def run(self, _image: str, command: list[str], *, volumes: dict[str, Any], **_: object) -> None:
        ((mounted, _how),) = volumes.items()
        subprocess.run([*command[:-1], command[-1].replace("/mnt/", f"{mounted}/")], check=True)

    def get(self, name: str) -> Volume:
        if name not in self.made or not self.made[name].directory.exists():
            raise docker.errors.NotFound("no such volume")
        return self.made[name]

    def create(self, name: str, labels: dict[str, str]) -> Path:
        data = self.root / "volumes" / name / "_data"
        data.mkdir(parents=True)
        self.made[name] = Volume(data.parent, labels)
        return data


class LayersNode:
    """A node whose engine has built an image of one file."""

    def __init__(self, engine: DockerStandIn, status: int = 0) -> None:
        self.data, self.status = engine.create("node-docker", {}), status

    def exec_run(self, command: list[str]) -> Any:
        (self.data / "overlay2" / "a").mkdir(parents=True)
        (self.data / "overlay2" / "a" / "file").write_text(command[-1])
        return type("Result", (), {"exit_code": self.status, "output": b"no space left on device"})


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(host, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(images, "base", lambda _client, _say: "base")
    return DockerStandIn(tmp_path / "docker")


def test_a_new_engine_gets_links_to_what_was_built(engine: Any) -> None:
    node = LayersNode(engine)
    layers.keep(engine, "1", "vault/serving", "vault/serving:1", node, "node-docker")  # type: ignore[arg-type]
    assert layers.held(engine, "1")
    assert not layers.held(engine, "2")
    new = engine.create("new-docker", {})
    layers.give(engine, "new-docker")
    assert (new / "overlay2" / "a" / "file").read_text() == "vault/serving:1"
    assert (new / "overlay2" / "a" / "file").samefile(node.data / "overlay2" / "a" / "file")


def test_layers_of_another_image_give_way(engine: Any) -> None:
    layers.keep(engine, "1", "vault/serving", "vault/serving:1", LayersNode(engine), "node-docker")  # type: ignore[arg-type]
    engine.get("node-docker").remove()
    layers.keep(engine, "2", "vault/serving", "vault/serving:2", LayersNode(engine), "node-docker")  # type: ignore[arg-type]
    assert layers.held(engine, "2")
    new = engine.create("new-docker", {})
    layers.give(engine, "new-docker")
    assert (new / "overlay2" / "a" / "file").read_text() == "vault/serving:2"


def test_a_push_that_fails_keeps_nothing_and_is_a_sentence(engine: Any) -> None:
    node = LayersNode(engine, status=1)
    with pytest.raises(SimulatorError, match=r"could not push vault/serving:1 \(status 1\):\nno space left on device"):
        layers.keep(engine, "1", "vault/serving", "vault/serving:1", node, "node-docker")  # type: ignore[arg-type]
    assert not layers.held(engine, "1")


def test_layers_that_are_forgotten_are_given_to_nobody(engine: Any) -> None:
    layers.keep(engine, "1", "vault/serving", "vault/serving:1", LayersNode(engine), "node-docker")  # type: ignore[arg-type]
    layers.forget(engine)
    layers.forget(engine)
    assert not layers.held(engine, "1")
    new = engine.create("new-docker", {})
    layers.give(engine, "new-docker")
    assert list(new.iterdir()) == []


def test_without_layers_a_new_engine_is_empty(engine: Any) -> None:
    new = engine.create("new-docker", {})
    layers.give(engine, "new-docker")
    assert list(new.iterdir()) == []


def test_what_was_interrupted_is_given_to_nobody(engine: Any) -> None:
    half = engine.create(layers.VOLUME, {})
    (half / "new" / "overlay2").mkdir(parents=True)
    new = engine.create("new-docker", {})
    layers.give(engine, "new-docker")
    assert list(new.iterdir()) == []
