"""What the account of a connection is set up with does not change what modules do on a node."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A file system of its own, where nothing may be executed, and the umask of a hardened node.
NODE = 'mount -t tmpfs -o noexec tmpfs "$1" && umask 077 && shift && exec "$@"'
SECRET = {"path": "{{ folder }}/state/secret", "content": "x", "mode": "0600"}
SOURCE = {"path": "{{ folder }}/etc/apt.sources", "content": "x"}


@pytest.mark.report("N02")
def test_modules_run_from_a_noexec_file_system_with_a_narrow_umask(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    play = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": {
                "folder": f"{tmp_path}/{pipelining}",
                "ansible_pipelining": pipelining,
                "ansible_remote_tmp": f"{temporary}/ansible",
                "ansible_python_interpreter": sys.executable,
            },
            "tasks": [{"node_files": {"files": [SECRET]}}, {"node_files": {"files": [SOURCE]}}],
        }
        for pipelining in (True, False)
    ]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    playbook = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", str(tmp_path / "play.yml")]
    ran = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", NODE, "sh", str(temporary), *playbook],
        capture_output=True,
        text=True,
        check=False,
        env={
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "TMPDIR": str(temporary),
            "HOME": str(temporary),
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        },
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for pipelining in ("True", "False"):
        folder = tmp_path / pipelining
        modes = {str(path.relative_to(folder)): f"{path.stat().st_mode & 0o777:03o}" for path in folder.rglob("*")}
        assert modes == {"etc": "755", "etc/apt.sources": "644", "state": "755", "state/secret": "600"}
