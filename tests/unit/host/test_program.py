"""The node's own program: processors of a fake /sys set and put back, and what it says of the running kernel."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils.gaudi.host import cmdline as kernel_cmdline
from ansible.module_utils.gaudi.host import state as host_state
from ansible.module_utils.gaudi.host.cmdline import NeededArgument

from tests.unit.host.test_state import REFUSALS
from tests.unit.node.damages import DAMAGES, damage
from tests.unit.preflight.test_templates import task_of

PROGRAM = Path(__file__).resolve().parents[3] / "roles/host_tuning/files/host_tuning.py"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("node_host_tuning", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cpu(root: Path, number: int, governor: str, deep: str = "0") -> None:
    freq = root / f"cpu{number}/cpufreq"
    freq.mkdir(parents=True)
    (freq / "scaling_available_governors").write_text("performance powersave\n")
    (freq / "scaling_governor").write_text(f"{governor}\n")
    for state, name in enumerate(("POLL", "C1_ACPI", "C2_ACPI", "C3_ACPI")):
        folder = root / f"cpu{number}/cpuidle/state{state}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "disable").write_text(deep if name == "C3_ACPI" else "0")


def tree(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text().strip() for path in root.rglob("*") if path.is_file()}


def test_set_settled_and_put_back(program: ModuleType, tmp_path: Path) -> None:
    cpus, before = tmp_path / "cpu", tmp_path / "run/before.json"
    cpu(cpus, 0, "powersave")
    cpu(cpus, 1, "performance", deep="1")
    original = tree(cpus)
    # cpu0: governor, C2, C3; cpu1: C2 only, its C3 was off before.
    assert program.apply(cpus, before) == 4
    assert (cpus / "cpu0/cpufreq/scaling_governor").read_text() == "performance"
    assert (cpus / "cpu0/cpuidle/state1/disable").read_text() == "0"
    assert (cpus / "cpu0/cpuidle/state3/disable").read_text() == "1"
    assert program.apply(cpus, before) == 0
    assert program.restore(cpus, before) == (4, [])
    assert tree(cpus) == original
    assert program.restore(cpus, before) == (0, [])


def test_what_somebody_changed_since_is_left(program: ModuleType, tmp_path: Path) -> None:
    cpus, before = tmp_path / "cpu", tmp_path / "run/before.json"
    cpu(cpus, 0, "powersave")
    program.apply(cpus, before)
    (cpus / "cpu0/cpufreq/scaling_governor").write_text("schedutil\n")
    (cpus / "cpu0/cpuidle/state2/disable").write_text("0\n")
    theirs = ["cpu0/cpufreq/scaling_governor", "cpu0/cpuidle/state2/disable"]
    assert program.restore(cpus, before) == (1, theirs)
    assert (cpus / theirs[0]).read_text() == "schedutil\n"
    assert (cpus / "cpu0/cpuidle/state3/disable").read_text() == "0"


def test_a_processor_that_comes_later(program: ModuleType, tmp_path: Path) -> None:
    cpus, before = tmp_path / "cpu", tmp_path / "run/before.json"
    cpu(cpus, 0, "powersave")
    program.apply(cpus, before)
    cpu(cpus, 1, "powersave")
    original = tree(cpus / "cpu1")
    assert program.apply(cpus, before) == 3
    program.restore(cpus, before)
    assert tree(cpus / "cpu1") == original
    assert (cpus / "cpu0/cpufreq/scaling_governor").read_text() == "powersave"


def test_without_cpufreq_and_cpuidle_there_is_nothing_to_do(program: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "cpu/cpu0").mkdir(parents=True)
    assert program.apply(tmp_path / "cpu", tmp_path / "before.json") == 0


def test_restore_without_controls_leaves_no_record(program: ModuleType, tmp_path: Path) -> None:
    """The role reports processors as not restored for as long as there is a record."""
    cpus, before = tmp_path / "cpu", tmp_path / "before.json"
    (cpus / "cpu0").mkdir(parents=True)
    program.apply(cpus, before)
    assert program.restore(cpus, before) == (0, [])
    assert not before.exists()
    read = task_of("host_tuning", "untune", "processors are as they were")["ansible.builtin.stat"]["path"]
    assert read == str(program.BEFORE)
    # Nothing was ever set.
    assert program.restore(cpus, before) == (0, [])


def test_restore_keeps_the_record_of_what_could_not_be_set(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpus, before = tmp_path / "cpu", tmp_path / "before.json"
    for number in (0, 1):
        cpu(cpus, number, "powersave", deep="1")
    original = tree(cpus)
    program.apply(cpus, before)
    real, busy = Path.write_text, cpus / "cpu1/cpufreq/scaling_governor"

    def write(self: Path, text: str, **options: Any) -> int:
        if self == busy:
            raise OSError(16, "Device or resource busy")
        return real(self, text, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", write)
        assert program.restore(cpus, before) == (3, [])
    assert json.loads(before.read_text()) == {"cpu1/cpufreq/scaling_governor": "powersave"}
    assert program.restore(cpus, before) == (1, [])
    assert tree(cpus) == original
    assert not before.exists()


def test_a_governor_the_kernel_does_not_offer_is_left(program: ModuleType, tmp_path: Path) -> None:
    cpu(tmp_path, 0, "schedutil")
    (tmp_path / "cpu0/cpufreq/scaling_available_governors").write_text("schedutil\n")
    assert "cpu0/cpufreq/scaling_governor" not in program.changes(tmp_path, program.Failures())


def test_a_control_that_cannot_be_read_or_set_ends_nothing(
    program: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As sysfs answers for an offline processor, and for a driver that takes no other governor."""
    cpus, before = tmp_path / "cpu", tmp_path / "before.json"
    for number in range(4):
        cpu(cpus, number, "powersave", deep="1")
    for number in (1, 2):
        (cpus / f"cpu{number}/cpufreq/scaling_available_governors").unlink()
    real = Path.write_text

    def write(self: Path, text: str, **options: Any) -> int:
        if self == cpus / "cpu3/cpufreq/scaling_governor":
            raise OSError(16, "Device or resource busy")
        return real(self, text, **options)

    monkeypatch.setattr(Path, "write_text", write)
    # Governor of CPU 0, and C2 of all.
    assert program.apply(cpus, before) == 5
    said = capsys.readouterr().out
    assert "CPU 1-2: cpufreq/scaling_available_governors cannot be read (No such file or directory)\n" in said
    assert "CPU 3: cpufreq/scaling_governor cannot be set (Device or resource busy)\n" in said
    assert program.restore(cpus, before)[0] == 5
    assert (cpus / "cpu0/cpufreq/scaling_governor").read_text() == "powersave"


@pytest.fixture
def msr(program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Registers of processors, as the kernel's module msr offers them: at their number, eight bytes each."""
    monkeypatch.setattr(program.registers, "DEVICES", tmp_path / "dev")
    return tmp_path / "dev"


def register(msr: Path, processor: int, number: int, value: int | None = None) -> int:
    """Write a register if there is a value; return what it has."""
    device = msr / str(processor) / "msr"
    if value is not None:
        device.parent.mkdir(parents=True, exist_ok=True)
        with device.open("r+b" if device.exists() else "wb") as file:
            file.seek(number)
            file.write(value.to_bytes(8, "little"))
    return int.from_bytes(device.read_bytes()[number : number + 8], "little")


def test_processors_without_cpufreq_prefer_performance_until_restored(
    program: ModuleType, tmp_path: Path, msr: Path
) -> None:
    """CPU 0 has a driver, CPU 1 the kernel's file for one of the two, CPU 2 only registers, CPU 3 is offline."""
    cpus, before = tmp_path / "cpu", tmp_path / "before.json"
    cpu(cpus, 0, "performance", deep="1")
    for number in (1, 2, 3):
        (cpus / f"cpu{number}").mkdir()
        (cpus / f"cpu{number}/online").write_text("0\n" if number == 3 else "1\n")
    (cpus / "cpu1/power").mkdir()
    (cpus / "cpu1/power/energy_perf_bias").write_text("6\n")
    for number in (1, 2):
        register(msr, number, 0x1B0, 0xAB7)
        register(msr, number, 0x774, 0x12_80_00_26_08)
    wanted = program.energy.controls("flags\t: fpu epb hwp hwp_epp\n")
    assert program.apply(cpus, before, cpu=False, wanted=wanted) == 4
    assert (cpus / "cpu1/power/energy_perf_bias").read_text() == "0"
    assert [register(msr, number, 0x1B0) for number in (1, 2)] == [0xAB7, 0xAB0]
    assert [register(msr, number, 0x774) for number in (1, 2)] == [0x12_00_00_26_08] * 2
    assert program.apply(cpus, before, cpu=False, wanted=wanted) == 0
    # Somebody sets one of them again: it is theirs from then on.
    register(msr, 2, 0x1B0, 0xAB4)
    assert program.restore(cpus, before) == (3, ["cpu2/msr/0x1b0"])
    assert (cpus / "cpu1/power/energy_perf_bias").read_text() == "6"
    assert [register(msr, number, 0x774) for number in (1, 2)] == [0x12_80_00_26_08] * 2
    assert register(msr, 2, 0x1B0) == 0xAB4


def test_processors_without_such_a_preference_are_left(program: ModuleType, tmp_path: Path, msr: Path) -> None:
    (tmp_path / "cpu/cpu0").mkdir(parents=True)
    register(msr, 0, 0x774, 0x80_00_26_08)
    wanted = program.energy.controls("flags\t: fpu hwp\n")
    assert program.apply(tmp_path / "cpu", tmp_path / "before.json", wanted=wanted) == 0
    assert register(msr, 0, 0x774) == 0x80_00_26_08


def test_without_the_msr_module_the_processors_are_named(
    program: ModuleType, tmp_path: Path, msr: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        (tmp_path / f"cpu/cpu{number}").mkdir(parents=True)
    wanted = program.energy.controls("flags : epb\n")
    assert not msr.exists()
    assert program.apply(tmp_path / "cpu", tmp_path / "before.json", wanted=wanted) == 0
    assert "CPU 0-2: msr/0x1b0 cannot be read" in capsys.readouterr().out


def document(needed: list[NeededArgument], waits: bool = True, cause: str = "") -> dict[str, Any]:
    """What the role leaves on the node."""
    arguments = [{**asdict(need), "waits": waits, "cause": cause} for need in needed]
    kept: dict[str, Any] = json.loads(
        json.dumps({"kernel_arguments": arguments, "reboot_needed": ["x"], "leaving": []})
    )
    return kept


@pytest.mark.parametrize(("waits", "cause"), [(True, ""), (False, ""), (False, "f:1 says iommu=soft. Remove it.")])
@pytest.mark.parametrize(("needed", "kernel", "running", "refused"), REFUSALS)
def test_the_same_refusal_as_the_role(
    program: ModuleType,
    needed: list[NeededArgument],
    kernel: str,
    running: list[str],
    refused: bool,
    waits: bool,
    cause: str,
) -> None:
    current = program.refresh(document(needed, waits, cause), kernel, running)
    waiting = needed if waits else []
    assert current["serving_refused"] == host_state.serving_refusal(
        needed, kernel, running, waiting, {need.argument: cause for need in needed}
    )
    assert (current["serving_refused"] is not None) == refused
    lacking = [need for need in waiting if not kernel_cmdline.holds(need.argument, running)]
    assert current["reboot_needed"] == host_state.reboot_reasons(lacking)


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_record_of_the_processors_is_said_and_begun_anew(
    program: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """To read a pipe waited for ever, at boot."""
    before = tmp_path / "before.json"
    damage(before, kind)
    assert program.restore(tmp_path, before) == (0, [])
    said = capsys.readouterr().out
    assert said.startswith(f"{before} is damaged: it ")
    assert "what the processors had before is not known; a reboot brings it back" in said
    # It stays, so that untune_host.yml can say so.
    assert os.path.lexists(before)
    assert program.apply(tmp_path, before) == 0
    assert json.loads(before.read_text()) == {}


def test_a_reboot_that_happened_is_no_longer_needed(program: ModuleType) -> None:
    both = document([NeededArgument("iommu=pt", "correctness", "x"), NeededArgument("quiet", "speed", "y")])
    assert program.refresh(both, "6.1", ["iommu=pt", "quiet"])["reboot_needed"] == []
    assert program.refresh(both, "6.1", ["iommu=pt"])["reboot_needed"] == ["quiet (speed: y)"]


def test_cards_that_are_translated_are_refused_until_a_boot_shows_otherwise(program: ModuleType) -> None:
    card = "DMA-FQ of 0000:33:00.0"
    kept = document([NeededArgument("iommu=pt", "correctness", "x", shown=True)])
    before = program.refresh(kept, "6.1", ["ro"], card)
    assert before["reboot_needed"] == ["iommu=pt (correctness: x)"]
    assert card in before["serving_refused"]
    after = program.refresh(kept, "6.1", ["iommu=pt"])
    assert (after["reboot_needed"], after["serving_refused"]) == ([], None)
    # An earlier release's document does not say what counts: the argument does.
    del kept["kernel_arguments"][0]["shown"]
    assert program.refresh(kept, "6.1", ["ro"])["serving_refused"] is not None


@pytest.mark.parametrize(("action", "says"), [("waits", "IOMMU translates"), ("allow", "")])
def test_the_groups_of_the_cards_are_the_supervisors_to_refuse(
    program: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    action: str,
    says: str,
) -> None:
    """Where systemd does not even start it, nobody learns why an instance does not serve."""
    state = tmp_path / "state.json"
    state.write_text(
        json.dumps({"schema": 2, **document([NeededArgument("iommu=pt", "correctness", "x", shown=True)])})
    )
    monkeypatch.setattr(program, "STATE", state)
    monkeypatch.setattr(program, "read_groups", lambda: (program.iommu.IommuGroup("0000:33:00.0", "4", "DMA"),))
    monkeypatch.setattr(sys, "argv", ["host_tuning.py", action])
    assert program.main() == 0
    said = capsys.readouterr()
    assert says in said.out
    assert said.err == ""


def test_what_was_ours_leaves_with_the_boot(program: ModuleType) -> None:
    kept = {**document([]), "leaving": [asdict(NeededArgument("quiet", "speed", "gone"))]}
    assert program.refresh(kept, "6.1", ["quiet"])["reboot_needed"] == ["quiet (speed: gone)"]
    assert program.refresh(kept, "6.1", ["ro"])["reboot_needed"] == []


def test_a_boot_without_what_was_there_before_is_not_repaired_by_one_more(program: ModuleType) -> None:
    booted = program.refresh(document([NeededArgument("iommu=pt", "correctness", "x")]), "6.1", ["iommu=pt"])
    assert booted["serving_refused"] is None
    again = program.refresh(booted, "6.1", ["iommu=soft"])
    assert again["reboot_needed"] == []
    assert "A reboot does not bring it" in again["serving_refused"]


def test_what_waits_is_said_in_sentences(program: ModuleType) -> None:
    assert program.waits({"reboot_needed": [], "serving_refused": None}) == []
    assert program.waits({"reboot_needed": ["iommu=pt (speed: x)"], "serving_refused": "No IOMMU. Reboot."}) == [
        "Reboot needed, because of iommu=pt (speed: x)",
        "Serving is refused. No IOMMU. Reboot.",
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 1}', "\udc80"])
@pytest.mark.parametrize(("action", "status"), [("allow", 255), ("waits", 0), ("apply", 0)])
def test_a_damaged_state_is_said_in_one_sentence(
    program: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    action: str,
    status: int,
) -> None:
    state = tmp_path / "host_tuning.json"
    state.write_bytes(text.encode(errors="surrogateescape"))
    monkeypatch.setattr(program, "STATE", state)
    monkeypatch.setattr("sys.argv", ["host_tuning.py", action])
    assert program.main() == status
    said = "".join(capsys.readouterr())
    assert said.startswith(f"Whether this kernel may serve is not known: {state} cannot be read (")
    assert said.endswith("Run playbooks/tune_host.yml, which writes it again.\n")
    assert said.count("\n") == 1
    assert state.read_bytes() == text.encode(errors="surrogateescape")


def test_the_state_of_the_role_can_be_read(program: ModuleType, tmp_path: Path) -> None:
    text = '{"schema": 2, "kernel_arguments": [], "leaving": [], "serving_refused": null}'
    assert program.parse(text)["serving_refused"] is None


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize(("action", "status"), [("allow", 255), ("waits", 0), ("apply", 0)])
def test_nothing_that_lies_where_the_state_is_to_be_holds_a_start_up(
    program: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    action: str,
    status: int,
) -> None:
    """To read a pipe waited for ever, and every instance asks before it starts."""
    state = tmp_path / "host_tuning.json"
    damage(state, kind)
    monkeypatch.setattr(program, "STATE", state)
    monkeypatch.setattr("sys.argv", ["host_tuning.py", action])
    assert program.main() == status
    assert f"{state} cannot be read (" in "".join(capsys.readouterr())


@pytest.mark.parametrize("action", ["apply", "restore", "allow", "waits"])
@pytest.mark.parametrize("broken", [False, True], ids=["missing", "incomplete"])
def test_without_the_library_it_says_so_and_no_instance_starts(tmp_path: Path, action: str, broken: bool) -> None:
    there = shutil.copy(PROGRAM, tmp_path)
    if broken:
        (tmp_path / "gaudi").mkdir()
        (tmp_path / "gaudi/__init__.py").touch()
    ran = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); "
         f"sys.argv = ['host_tuning.py', {action!r}]; runpy.run_path({str(there)!r}, run_name='__main__')"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    # systemd calls an instance whose condition ends with 255 failed, not skipped.
    assert (ran.returncode, ran.stdout) == (255, "")
    assert ran.stderr.startswith("Whether this kernel may serve is not known: No module named 'gaudi")
    assert ran.stderr.endswith("Run playbooks/tune_host.yml, which installs it.\n")
    assert ran.stderr.count("\n") == 1


def test_with_the_library_beside_it_the_program_runs_as_the_unit_starts_it(tmp_path: Path) -> None:
    there = shutil.copy(PROGRAM, tmp_path)
    shutil.copytree(PROGRAM.parents[3] / "module_utils/gaudi", tmp_path / "gaudi")
    ran = subprocess.run(
        [sys.executable, "-B", str(there), "waits"], env={}, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
