"""The driver's stand-ins: dkms, modprobe, and what a bare node has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible.module_utils.gaudi.driver.build_log import cause as build_cause
from ansible.module_utils.gaudi.driver.build_log import last_attempt
from ansible.module_utils.gaudi.driver.troubles import recognised

from simulator import drivers
from simulator.standins import description
from simulator.standins.node import devices, dkms, kmod
from tests.unit.driver.made import FACTS, RECORDED

KERNEL = "6.8.0-45-generic"
REALLY_RUN = subprocess.run


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with nothing of the vendor's, and the headers of its kernel."""
    for module, name, path in (
        *((dkms, "STATE", "dkms.json"), (dkms, "PACKAGES", "info"), (devices, "PACKAGES", "info")),
        *((dkms, "BROKEN", "does-not-build"), (kmod, "SECURE_BOOT", "secure-boot")),
        *((kmod, "IN_USE", "in-use"), (kmod, "LIBRARY", "modules"), (dkms, "MODULES", "modules")),
        *((dkms, "REMOVED", "dkms-removed.json"), (dkms, "TREE", "tree")),
        *((kmod, "DKMS", "dkms.json"), (kmod, "KERNEL", "osrelease"), (kmod, "NODE_DOCUMENT", "node.json")),
    ):
        monkeypatch.setattr(module, name, tmp_path / path)
    monkeypatch.setattr(subprocess, "run", MagicMock())
    (tmp_path / "info").mkdir()
    (tmp_path / "info" / f"linux-headers-{KERNEL}.list").touch()
    (tmp_path / "osrelease").write_text(f"{KERNEL}\n")
    (tmp_path / "node.json").write_text(description.render(description.load("gaudi2-oam8-bare")))
    return tmp_path


def run_dkms(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dkms", *arguments])
    return dkms.main()


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kmod.NODE_DOCUMENT.read_text())
    return found


def modprobe(*arguments: str) -> int:
    return kmod.modprobe(document(), list(arguments))


def test_a_module_is_added_once(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_dkms(monkeypatch, "add", "habanalabs/1.22.2-32") == 0
    assert run_dkms(monkeypatch, "add", "habanalabs/1.22.2-32") == 3
    assert capsys.readouterr().err == "Error! DKMS tree already contains: habanalabs-1.22.2-32\n"


def test_what_is_not_in_the_tree_cannot_be_removed(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status and words are those of dkms 3.0.10 in Debian 12 (module_is_added_or_die)."""
    run_dkms(monkeypatch, "add", "habanalabs/1.22.2-32")
    assert run_dkms(monkeypatch, "remove", "habanalabs/1.22.2-32", "--all") == 0
    for version in ("1.22.2-32", "1.21.3-57"):
        assert run_dkms(monkeypatch, "remove", f"habanalabs/{version}", "--all") == 3
        words = f"Error! The module/version combo: habanalabs-{version} is not located in the DKMS tree.\n"
        assert capsys.readouterr().err == words


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("6.8.0-99-generic", "Your kernel headers for kernel 6.8.0-99-generic"),
        ("6.17.0-22-generic", "Bad return status"),
    ],
)
def test_a_kernel_that_nothing_is_built_for(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kernel: str, words: str
) -> None:
    (bare / "info" / "linux-headers-6.17.0-22-generic.list").touch()
    run_dkms(monkeypatch, "add", "habanalabs/1.22.2-32")
    assert run_dkms(monkeypatch, "install", "habanalabs/1.22.2-32", "-k", kernel) != 0
    assert words in capsys.readouterr().err


def test_what_a_file_names_does_not_build(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (bare / "does-not-build").write_text("habanalabs/1.21.3-57\n")
    for version, status in (("1.21.3-57", 10), ("1.22.2-32", 0)):
        run_dkms(monkeypatch, "add", f"habanalabs/{version}")
        assert run_dkms(monkeypatch, "install", f"habanalabs/{version}", "-k", KERNEL) == status
    assert "Bad return status for module build on kernel" in capsys.readouterr().err


MODULE = "habanalabs/1.24.1-482"


def files(bare: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in (bare / "modules" / KERNEL / "updates/dkms").glob("*")}


def test_an_install_after_a_removal_is_empty_until_a_build_is_forced(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["add", MODULE], ["install", MODULE, "-k", KERNEL]):
        assert run_dkms(monkeypatch, *command) == 0
    assert set(files(bare)) == {f"{name}.ko" for name, *_ in kmod.MODULES}
    assert min(files(bare).values()) > 0
    for command in (["remove", MODULE, "--all"], ["add", MODULE], ["install", MODULE, "-k", KERNEL]):
        assert run_dkms(monkeypatch, *command) == 0
    assert set(files(bare).values()) == {0}
    capsys.readouterr()
    run_dkms(monkeypatch, "status")
    assert capsys.readouterr().out == f"{MODULE}, {KERNEL}, x86_64: installed\n"
    assert modprobe("habanalabs_compat") == 1
    monkeypatch.setattr(sys, "argv", ["modinfo", "habanalabs_cn"])
    assert kmod.main() == 1
    said = capsys.readouterr()
    recorded = (RECORDED / "zero_byte_modules_1.24.1.txt").read_text(encoding="utf-8")
    for line in said.err.splitlines():
        assert line.replace("habanalabs_compat", "habanalabs_cn") in recorded
    found = recognised(said.err)
    assert found is not None
    assert found.id == "module_file_damaged"
    for verb in ("build", "install"):
        assert run_dkms(monkeypatch, verb, MODULE, "-k", KERNEL, "--force") == 0
    assert min(files(bare).values()) > 0
    assert modprobe("habanalabs_compat") == 0
    # A removal leaves nothing.
    assert run_dkms(monkeypatch, "remove", MODULE, "--all") == 0
    assert not (bare / "modules" / KERNEL).exists()
    assert not (bare / "tree").exists()


@pytest.mark.parametrize(
    ("cause", "id_"),
    [
        ("layout", "headers_layout_misread"),
        ("werror", "kernel_too_new"),
        ("compiler", "no_compiler"),
        ("headers", "kernel_headers_incomplete"),
        ("", None),
    ],
)
def test_the_log_of_a_build_that_fails_has_its_cause(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cause: str, id_: str | None
) -> None:
    (bare / "does-not-build").write_text(f"{MODULE} {cause}\n")
    assert run_dkms(monkeypatch, "add", MODULE) == 0
    assert run_dkms(monkeypatch, "build", MODULE, "-k", KERNEL) == 10
    kernel, attempt = last_attempt((bare / "tree" / MODULE / "build/make.log").read_text())
    assert kernel == KERNEL
    found = build_cause(attempt, kernel)
    assert (found and found.id) == id_


@pytest.mark.parametrize("fails", [False, True])
def test_the_script_of_the_drivers_package_says_and_does_what_was_recorded(
    bare: Path, tmp_path: Path, fails: bool
) -> None:
    """Its lines with those of apt and dpkg around them; 10 is the status that dpkg reported."""
    (package,) = [each for each in drivers.offered() if (each.name, each.version) == ("habanalabs-dkms", "1.24.1-482")]
    program = tmp_path / "dkms"
    error = "Error! Bad return status for module build on kernel: 6.1.0-53-amd64 (x86_64)"
    log = "Consult /var/lib/dkms/habanalabs/1.24.1-482/build/make.log for more information."
    lines = f"echo '{error}' >&2; echo '{log}' >&2; exit 10" if fails else "exit 0"
    program.write_text(f'#!/bin/sh\nif [ "$1" = build ]; then {lines}; fi\n')
    program.chmod(0o755)
    script = tmp_path / "postinst"
    script.write_text(package.scripts["postinst"])
    done = REALLY_RUN(
        ["sh", str(script)],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == (10 if fails else 0)
    name = "apt_install_1.24.1_debian12.txt" if fails else "dpkg_configure_1.24.1_debian12.txt"
    assert done.stdout.strip() in (RECORDED / name).read_text(encoding="utf-8")


def test_the_drivers_package_loads_what_the_vendors_file_names() -> None:
    (package,) = [each for each in drivers.offered() if (each.name, each.version) == ("habanalabs-dkms", "1.24.1-482")]
    recorded = (RECORDED / "modules_load_1.24.1.conf").read_bytes()
    assert package.files["etc/modules-load.d/habanalabs.conf"].content == recorded
    assert b"habanalabs\n" not in recorded.splitlines(keepends=True)


def test_hl_qual_brings_what_was_recorded() -> None:
    text = (RECORDED / "apt_install_qual_1.24.1_debian12.txt").read_text(encoding="utf-8")
    named = {line.split()[4] for line in text.splitlines() if line.startswith("Get:")}
    made = {package.name: package for package in drivers.offered() if package.version == drivers.SENSORS_VERSION}
    assert {*made, "habanalabs-qual"} == named
    (qual,) = [each for each in drivers.offered() if (each.name, each.version) == ("habanalabs-qual", "1.24.1-482")]
    needed, wanted = set(), list(qual.depends)
    while wanted:
        name = wanted.pop()
        needed.add(name)
        wanted += made[name].depends
    assert needed == set(made)


def test_secure_boot_refuses_what_nobody_signed(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dkms(monkeypatch, "add", "habanalabs/1.22.2-32")
    run_dkms(monkeypatch, "install", "habanalabs/1.22.2-32", "-k", KERNEL)
    (bare / "secure-boot").touch()
    assert modprobe("habanalabs_compat") == 1
    said = recognised(capsys.readouterr().err)
    assert said is not None
    assert said.id == "module_not_signed"
    (bare / "secure-boot").unlink()
    assert modprobe("habanalabs_compat") == 0


def test_a_module_in_use_stays(bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run_dkms(monkeypatch, "add", "habanalabs/1.22.2-32")
    run_dkms(monkeypatch, "install", "habanalabs/1.22.2-32", "-k", KERNEL)
    assert modprobe("habanalabs_compat") == 0
    (bare / "in-use").touch()
    assert modprobe("--remove", "habanalabs_compat") == 1
    assert "Module habanalabs_compat is in use." in capsys.readouterr().err
    assert document()["driver"]["modules"] == ["habanalabs_compat"]


@pytest.mark.parametrize("version", ["1.18.0-524", "1.22.2-32"])
def test_modules_go_in_and_out_in_their_order_only(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    """The orders of the catalogue are those that the stand-in lets through."""
    order = FACTS.order(version)
    assert modprobe(order.load[0]) == 1, "nothing is built yet"
    run_dkms(monkeypatch, "add", f"habanalabs/{version}")
    run_dkms(monkeypatch, "install", f"habanalabs/{version}", "-k", KERNEL)
    assert modprobe(order.load[1]) == 1, "its first is missing"
    assert [modprobe(name) for name in order.load] == [0] * len(order.load)
    assert document()["driver"]["loaded"]
    assert document()["driver"]["version"].startswith(f"{version.partition('-')[0]}-")
    assert modprobe("--remove", order.unload[1]) == 1
    assert "is in use" in capsys.readouterr().err
    assert [modprobe("--remove", name) for name in order.unload] == [0] * len(order.unload)
    assert not document()["driver"]["loaded"]


def test_what_a_package_brought_stays(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {bare / "hl-smi": "habanalabs-firmware-tools", bare / "runtime": "habanalabs-container-runtime"}
    monkeypatch.setattr(devices, "PROGRAMS", programs)
    for program in programs:
        program.touch()
    (bare / "info" / "habanalabs-firmware-tools.list").touch()
    devices.remove_programs()
    assert [program.exists() for program in programs] == [True, False]
