"""needrestart, which restarts services after an update of a library, leaves our units alone, and only ours."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from library import node_files
from tests.unit.host.modules import run_main
from tests.unit.preflight.test_templates import evaluate, task_of
from tests.unit.vllm_service.test_rendered import PLAN, ROOT, written

FOLDER = "/etc/needrestart/conf.d/"
# needrestart 3.6 (Debian 12): its configuration reads conf.d like this, and its main program asks the hash like this.
READER = r"""
our %nrconf = (override_rc => {qr(^docker) => 0});
foreach my $fn (sort <$ARGV[0]/*.conf>) {
    eval do { local(@ARGV, $/) = $fn; <>};
    die "Error parsing $fn: $@" if($@);
}
foreach my $rc (@ARGV[1..$#ARGV]) {
    my $restart = 1;
    foreach my $re (keys %{$nrconf{override_rc}}) {
        next unless($rc =~ /$re/);
        $restart = $nrconf{override_rc}->{$re};
        last;
    }
    print "$rc\n" if($restart);
}
"""


def files(instance: str) -> dict[str, str]:
    """The files that the roles write for needrestart, by path."""
    plan = {**PLAN, "instance": instance}
    given = written(plan)
    given += evaluate("node_job", task_of("node_job", "install", "node_files")["node_files"]["files"])
    tuning = task_of("host_tuning", "unit", "node_files")["node_files"]["files"]
    given += [evaluate("host_tuning", file) for file in tuning if "needrestart" in str(file)]
    texts = {str(file["path"]): str(file.get("content", "")) for file in given}
    return {path: text for path, text in texts.items() if path.startswith(FOLDER)}


def restarted(tmp_path: Path, units: list[str], instances: tuple[str, ...] = ("chat",)) -> set[str]:
    """The units that needrestart would restart."""
    for path, text in {path: text for each in instances for path, text in files(each).items()}.items():
        (tmp_path / Path(path).name).write_text(text)
    perl = shutil.which("perl")
    assert perl, "perl belongs to every Debian"
    done = subprocess.run([perl, "-we", READER, str(tmp_path), *units], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.splitlines())


def units_of_ours() -> list[str]:
    """Every unit that a role of this project installs, with names put in."""
    found = [
        path for pattern in ("files/*.service", "templates/*.service.j2") for path in ROOT.glob(f"roles/*/{pattern}")
    ]
    names = {path.name.removesuffix(".j2") for path in found}
    return sorted(names - {"gaudi-job@.service"} | {"gaudi-job@fetch.x-1.service", "vllm-chat.service"})


@pytest.mark.report("S01")
def test_units_of_ours_are_left_alone(tmp_path: Path) -> None:
    assert len(units_of_ours()) >= 4
    assert restarted(tmp_path, units_of_ours()) == set()


@pytest.mark.report("S01")
def test_units_of_others_are_restarted_as_before(tmp_path: Path) -> None:
    others = [
        *("vllm-chat-2.service", "vllm-chat.service.d", "my-vllm-chat.service", "vllm-chatXservice", "vllm.service"),
        *("gaudi-job@.service", "gaudi-jobs.service", "gaudi-host-tuning2.service", "ssh.service"),
    ]
    assert restarted(tmp_path, others) == set(others)


def test_each_instance_has_its_own_file(tmp_path: Path) -> None:
    units = ["vllm-chat.service", "vllm-chat-2.service", "vllm-other.service"]
    assert restarted(tmp_path, units, ("chat", "chat-2")) == {"vllm-other.service"}


def removals(role: str, file: str) -> list[dict[str, Any]]:
    """What a file of tasks removes of needrestart's, for the instance chat."""
    given = yaml.safe_load((ROOT / "roles" / role / "tasks" / file).read_text())
    found = [each for task in given for each in task.get("node_files", {}).get("files", [])]
    return [evaluate(role, each, vllm_service_instance="chat") for each in found if "needrestart" in str(each)]


@pytest.mark.report("S01")
@pytest.mark.parametrize(
    ("role", "file"), [("vllm_service", "erase.yml"), ("node_job", "remove.yml"), ("host_tuning", "untune.yml")]
)
def test_the_file_goes_with_its_unit(role: str, file: str, tmp_path: Path) -> None:
    (removal,) = removals(role, file)
    path = removal["path"]
    assert path in files("chat")
    here = tmp_path / path.lstrip("/")
    here.parent.mkdir(parents=True)
    here.write_text(files("chat")[path])
    removal |= {"path": str(here), "empty_up_to": str(tmp_path / removal["empty_up_to"].lstrip("/"))}
    other = here.parent / "site.conf"
    if role == "node_job":
        other.write_text("1;\n")
    assert run_main(node_files.__name__, {"files": [removal]})["changed"]
    # A directory that was made for it goes as well, and one that others use stays.
    assert other.exists() is (role == "node_job")
    assert (tmp_path / "etc/needrestart").exists() is (role == "node_job")
    assert (tmp_path / "etc").exists()
