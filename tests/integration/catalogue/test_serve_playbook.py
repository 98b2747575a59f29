"""playbooks/tasks/serve_config.yml: what lies beside weights that are not in the catalogue is looked at before use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]


# What is beside the weights of each host: its config.json, or None where there is none.
READ = {"text": b'{"model_type": "qwen2", "by": "J\xc3\xbcrgen {{ x }}"}', "text2": b'{"model_type": {', "empty": b""}
REFUSED = ("absent", "bytes", "directory", "large", "link")
TOO_LARGE = b"{}" + b" " * (1 << 20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the tasks once, for a host of each kind on this machine, and note what they read as serve.yml hands it on."""
    request = yaml.safe_load((ROOT / "playbooks" / "serve.yml").read_text(encoding="utf-8"))[0]["vars"]["serve_request"]
    for host in (*READ, *REFUSED):
        (folder / host / "My Model").mkdir(parents=True)
    for host, content in (*READ.items(), ("large", TOO_LARGE), ("bytes", b"\xff\xfe{")):
        (folder / host / "My Model" / "config.json").write_bytes(content)
    (folder / "directory" / "My Model" / "config.json").mkdir()
    # A user of the node brought the weights, and root alone may read what the link leads to.
    (folder / "link" / "of_root.json").write_bytes(READ["text"])
    (folder / "link" / "My Model" / "config.json").symlink_to("../of_root.json")
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {"serve_weights": f"{folder}/{{{{ inventory_hostname }}}}/My Model"},
        "tasks": [
            {"ansible.builtin.include_tasks": str(ROOT / "playbooks" / "tasks" / "serve_config.yml")},
            {
                "ansible.builtin.copy": {
                    "content": request["model_config"],
                    "dest": f"{folder}/{{{{ inventory_hostname }}}}/read",
                }
            },
        ],
    }
    (folder / "play.yml").write_text(json.dumps([play]), encoding="utf-8")
    hosts = ",".join([*READ, *REFUSED])
    return subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", f"{hosts},", "-c", "local", "play.yml"],
        cwd=folder,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_PYTHON_INTERPRETER": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("absent", "/absent/My Model/config.json is not on absent."),
        ("bytes", "/bytes/My Model/config.json"),
        ("directory", "it is a directory"),
        ("large", "/large/My Model/config.json has more than 1048576 characters"),
        ("link", "/link/My Model/config.json is a link to"),
    ],
)
def test_what_is_no_config_json_is_said_before_anything_is_changed(
    run: subprocess.CompletedProcess[str], folder: Path, host: str, words: str
) -> None:
    assert run.returncode != 0
    said = " ".join(run.stdout.replace("''", "'").split())
    assert words in said
    assert said.count("Nothing was changed.") == len(REFUSED)
    assert not (folder / host / "read").exists()


@pytest.mark.parametrize("host", READ)
def test_any_text_is_handed_on(run: subprocess.CompletedProcess[str], folder: Path, host: str) -> None:
    read = folder / host / "read"
    assert read.is_file(), run.stdout + run.stderr
    assert read.read_bytes() == READ[host]
