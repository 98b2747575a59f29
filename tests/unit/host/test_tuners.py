"""Other programs that set the governor, by what systemd and their own files say."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.gaudi.node.host import tuning

from tests.unit.host.test_info import DebianHost

PPD, TLP, UTILS = "power-profiles-daemon.service", "tlp.service", "cpufrequtils.service"


@pytest.mark.report("H10")
@pytest.mark.parametrize(
    ("unit", "active", "enabled", "files", "said"),
    [
        (PPD, "active", "enabled", {}, "power-profiles-daemon"),
        (
            PPD,
            "active",
            "enabled",
            {"var/lib/power-profiles-daemon/state.ini": "[State]\nProfile=power-saver\n"},
            "saver",
        ),
        (PPD, "active", "enabled", {"var/lib/power-profiles-daemon/state.ini": "Profile=performance\n"}, None),
        (PPD, "inactive", "disabled", {}, None),
        (PPD, "inactive", "masked", {}, None),
        (TLP, "inactive", "enabled", {"etc/tlp.conf": "#CPU_SCALING_GOVERNOR_ON_AC=performance\n"}, "TLP"),
        (TLP, "active", "enabled", {"etc/tlp.conf": "CPU_SCALING_GOVERNOR_ON_AC=performance\n"}, None),
        (
            TLP,
            "active",
            "enabled",
            {
                "etc/tlp.conf": "CPU_SCALING_GOVERNOR_ON_AC=performance\n",
                "etc/tlp.d/50-a.conf": "CPU_SCALING_GOVERNOR_ON_AC=powersave\n",
            },
            "/etc/tlp.d/50-a.conf says powersave",
        ),
        (
            UTILS,
            "active",
            "generated",
            {"etc/default/cpufrequtils": 'ENABLE="true"\nGOVERNOR="ondemand"\n'},
            "says ondemand",
        ),
        (UTILS, "active", "generated", {"etc/default/cpufrequtils": 'GOVERNOR="performance"\n'}, None),
        (
            "cpupower.service",
            "active",
            "enabled",
            {"etc/sysconfig/cpupower": 'CPUPOWER_START_OPTS="frequency-set -g powersave"\n'},
            "says frequency-set -g powersave",
        ),
        ("auto-cpufreq.service", "active", "enabled", {}, "auto-cpufreq"),
        ("ondemand.service", "inactive", "enabled", {}, "ondemand"),
        ("thermald.service", "active", "enabled", {}, None),
        ("irqbalance.service", "active", "enabled", {}, None),
    ],
)
def test_other_programs_that_set_the_governor(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unit: str,
    active: str,
    enabled: str,
    files: dict[str, str],
    said: str | None,
) -> None:
    debian = DebianHost(tmp_path, monkeypatch)
    monkeypatch.setattr(tuning, "ROOT", debian.root / "root")
    for name, text in files.items():
        path = debian.root / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shown = f"Id={unit}\nActiveState={active}\nUnitFileState={enabled}\n"
    debian.programs["systemctl"] = lambda command: (0, shown if PPD in command else "", "")
    found = [sentence for sentence in debian.run()["findings"] if f"({unit})" in sentence]
    assert len(found) == (said is not None)
    if said:
        assert said in found[0]
        assert "governor performance is then undone" in found[0]
    # The processors are not ours then.
    assert not any(unit in sentence for sentence in debian.run(cpu=False)["findings"])
