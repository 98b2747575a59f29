"""What TuneD's active profile undoes of the host's settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.gaudi.node.host import tuning

from tests.unit.host.test_info import DebianHost

LIB = "usr/lib/tuned"
MAY = "TuneD is set to the profile X, which may set the governor and kernel settings after this role"


@pytest.mark.report("H09")
@pytest.mark.parametrize(
    ("files", "said"),
    [
        # As Debian 12 ships throughput-performance, balanced, network-latency and virtual-host: shortened.
        ({f"{LIB}/X": "[main]\nsummary=s\n[cpu]\ngovernor=performance\n[sysctl]\nvm.dirty_ratio = 40\n"}, None),
        ({f"{LIB}/X": "[cpu]\ngovernor=conservative|powersave\n"}, "governor=conservative|powersave"),
        (
            {f"{LIB}/X": "[main]\ninclude=base\n[vm]\nx=1\n", f"{LIB}/base": "[cpu]\ngovernor=powersave\n"},
            f"/{LIB}/base",
        ),
        ({f"{LIB}/X": "[main]\ninclude=a, -b\n[cpu]\ngovernor=performance\n", f"{LIB}/a": "[cpu]\ngovernor=x\n"}, None),
        ({f"{LIB}/X": "[cpu]\nforce_latency=cstate.id_no_zero:3|70\n"}, None),
        # /etc wins, and may include the profile of the same name.
        ({f"{LIB}/X": "[cpu]\ngovernor=powersave\n", "etc/tuned/X": "[disk]\nreadahead=1\n"}, None),
        ({f"{LIB}/X": "[cpu]\ngovernor=powersave\n", "etc/tuned/X": "[main]\ninclude=X\n"}, f"/{LIB}/X"),
        ({f"{LIB}/profiles/X": "[cpu]\ngovernor=powersave # slow\n"}, "sets governor=powersave ("),
        # Sections of any name, switched off, dropped and replaced.
        ({f"{LIB}/X": "[slow]\ntype=cpu\ngovernor=powersave\n"}, "sets governor=powersave ("),
        ({f"{LIB}/X": "[cpu]\nenabled=false\ngovernor=powersave\n"}, None),
        ({f"{LIB}/X": "[main]\ninclude=a\n[cpu]\ndrop=governor\n", f"{LIB}/a": "[cpu]\ngovernor=powersave\n"}, None),
        ({f"{LIB}/X": "[main]\ninclude=a\n[cpu]\nreplace=1\n", f"{LIB}/a": "[cpu]\ngovernor=powersave\n"}, None),
        # TuneD applies the system's sysctl files again, unless it is told not to.
        ({f"{LIB}/X": "[sysctl]\nvm.nr_hugepages=5\n"}, None),
        (
            {f"{LIB}/X": "[sysctl]\nvm.nr_hugepages=5\n", "main": "daemon = 1\nreapply_sysctl = 0\n"},
            "vm.nr_hugepages=5",
        ),
        ({f"{LIB}/X": "[sysctl]\nvm.nr_hugepages = 0\n", "main": "reapply_sysctl=0\n"}, None),
        ({f"{LIB}/X": "[sysfs]\n/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages=7\n"}, "nr_hugepages=7"),
        ({f"{LIB}/X": "[sysfs]\n/sys/devices/system/cpu/cpu*/cpuidle/state2/disable=0\n"}, "state2/disable=0"),
        # What is not known.
        ({}, f"{MAY} (there is no X/tuned.conf that can be read)"),
        ({f"{LIB}/X": "[main\n"}, f"{MAY} (/{LIB}/X/tuned.conf cannot be read"),
        ({f"{LIB}/X": "[main]\ninclude=${f:virt_check:a:b}\n"}, f"{MAY} (/{LIB}"),
        ({f"{LIB}/X": "[cpu]\ngovernor=${g}\n"}, f"{MAY} (/{LIB}/X/tuned.conf sets governor=${{g}})"),
        ({f"{LIB}/X": "[script]\nscript=${i:PROFILE_DIR}/script.sh\n"}, "runs ${i:PROFILE_DIR}/script.sh"),
        ({f"{LIB}/X": "[script]\nscript=s.sh\n[cpu]\ngovernor=powersave\n"}, "sets governor=powersave ("),
    ],
)
def test_only_a_profile_of_tuned_that_undoes_something_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], said: str | None
) -> None:
    debian = DebianHost(tmp_path, monkeypatch)
    root = debian.root / "root"
    monkeypatch.setattr(tuning, "ROOT", root)
    monkeypatch.setattr(tuning, "TUNED", root / "etc/tuned/active_profile")
    names = {name: "etc/tuned/tuned-main.conf" if name == "main" else f"{name}/tuned.conf" for name in files}
    for path, text in {
        **{names[name]: text for name, text in files.items()},
        "etc/tuned/active_profile": "X\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    found = [sentence for sentence in debian.run()["findings"] if "TuneD" in sentence]
    assert len(found) == (said is not None), found
    assert said is None or said in found[0]
    # Where TuneD is known to be switched off, its profile has no effect.
    shown = "Id=tuned.service\nActiveState=inactive\nUnitFileState=disabled\n"
    debian.programs["systemctl"] = lambda command: (0, shown if "tuned.service" in command else "", "")
    assert not any("TuneD" in sentence for sentence in debian.run()["findings"])
    # The processors are not ours then.
    debian.programs["systemctl"] = lambda _command: (0, "", "")
    assert not any("sets governor" in sentence for sentence in debian.run(cpu=False)["findings"])
