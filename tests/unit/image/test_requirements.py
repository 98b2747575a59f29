"""Requirement files of a fork: what names a branch is replaced before pip reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.image.requirements import included, rewritten

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "roles" / "serving_image" / "files" / "gaudi_image" / "context"
# The requirement file of the fork at the commit of release 1.22.
FORK = """# Common dependencies
-r common.txt

# Dependencies for HPU code
accelerate
triton==3.1.0
setuptools>=77.0.3
vllm-hpu-extension @ git+https://github.com/HabanaAI/vllm-hpu-extension.git@aice/v1.22.0
neural_compressor_pt @ git+https://github.com/intel/neural-compressor.git@aice/v122
"""
BOTH = ("vllm-hpu-extension", "neural-compressor-pt")


def test_lines_that_name_a_branch_leave_the_bare_name() -> None:
    lines = rewritten(FORK, "hpu.txt", BOTH, ()).splitlines()
    assert lines[-2:] == ["vllm-hpu-extension", "neural_compressor_pt"]
    assert lines[:-2] == FORK.splitlines()[:-2]


def test_a_branch_without_a_pin_is_refused_with_its_line() -> None:
    with pytest.raises(Refusal, match=r"hpu.txt, line 9, wants neural_compressor_pt @ git") as caught:
        rewritten(FORK, "hpu.txt", BOTH[:1], ())
    assert caught.value.id == "requirement_without_pin"


@pytest.mark.parametrize("line", ["git+https://github.com/x/y@main", "-e ./other", "x @ https://example.com/x.whl"])
def test_other_sources_than_the_index_are_refused(line: str) -> None:
    with pytest.raises(Refusal, match="line 1"):
        rewritten(f"{line}\n", "hpu.txt", BOTH, ())


@pytest.mark.parametrize(
    "line",
    [
        *("https://example.com/x.tar.gz", "./x", "/opt/x.whl", "../x", "file:///x", "x.whl/../y", "hg+ssh://h/x"),
        *("x@https://example.com/x.whl", "-fhttps://example.com", "--find-links https://example.com"),
        *("-i https://example.com/simple", "--extra-index-url=https://example.com", "--trusted-host example.com"),
        *("-e./other", "--editable=./other", "-c constraints.txt", "-r https://example.com/r.txt", "-r ../r.txt"),
        *("-r/etc/r.txt", "-r ~/r.txt", "-r ${HOME}/r.txt", "x \\", "x ; python_version > '3' \\", "${X}"),
        *("x#egg @ git+https://h/x", "x==1 --global-option=y", "--pre"),
    ],
)
def test_a_line_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(Refusal) as refused:
        rewritten(f"{line}\n", "hpu.txt", BOTH, ())
    assert refused.value.id == "requirement_without_pin"


def test_all_forms_of_packages_are_taken() -> None:
    text = (
        "ray[cgraph]>=2.43.0, !=2.44.*\nlm-format-enforcer >= 0.10.11, < 0.11\ntorch==2.7.0+cpu\nx(>=1)\n"
        "importlib_metadata; python_version < '3.10'\nxgrammar == 0.1.21; platform_machine == \"x86_64\" or x\n"
        "pillow  # Required\n\t# a comment\ny===1.0\nz ~= 2.0\n-rcommon.txt  # all\n-r requirements/x.txt\n"
    )
    assert rewritten(text, "common.txt", BOTH, ()) == text
    assert included(text) == ["common.txt", "requirements/x.txt"]


def test_what_stays_the_vendors_is_dropped() -> None:
    said = rewritten("torch==2.7.0\ntorchvision\ncmake>=3.26\n# torch stays\n", "cuda.txt", (), ("torch",))
    assert said == "cmake>=3.26\n# torch stays\n"


def test_ordinary_lines_stay_as_they_are() -> None:
    text = 'fastapi[standard] >= 0.115.0 # for the API\nsix>=1.16.0; python_version > "3.11"\nuvicorn[standard]\n'
    assert rewritten(text, "common.txt", BOTH, ("torch",)) == text


def test_includes_are_found() -> None:
    assert included("-r common.txt\n--requirement=other.txt\nray\n") == ["common.txt", "other.txt"]


def run(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    search = f"{PROGRAM}{os.pathsep}{ROOT / 'module_utils'}"
    command = [sys.executable, "-m", "gaudi_build", str(file), *options]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": search}
    )


def test_the_program_rewrites_what_is_included_as_well(tmp_path: Path) -> None:
    (tmp_path / "hpu.txt").write_text("-r common.txt\nray\n")
    (tmp_path / "common.txt").write_text(FORK.replace("-r common.txt\n", ""))
    done = run(tmp_path / "hpu.txt", *(f"--replaced={name}" for name in BOTH))
    assert done.returncode == 0, done.stderr
    assert "git+" not in (tmp_path / "common.txt").read_text()


def test_the_program_says_what_it_refuses(tmp_path: Path) -> None:
    (tmp_path / "hpu.txt").write_text("x @ git+https://example.com/x@main\n")
    done = run(tmp_path / "hpu.txt")
    assert done.returncode == 1
    assert done.stderr.startswith("gaudi-image refused requirement_without_pin: hpu.txt, line 1, wants x @ git")
    missing = run(tmp_path / "other.txt")
    assert missing.returncode == 1
    assert "refused no_requirement_file: The checkout has no " in missing.stderr
