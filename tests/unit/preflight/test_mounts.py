"""File systems that are to be mounted and are not: who names them, and what lies on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.preflight import mounts
from ansible.module_utils.gaudi.preflight.mounts import FSTAB, Mount

from library import gaudi_preflight
from tests.unit.preflight.conftest import Answer, Run
from tests.unit.preflight.test_modules import IMAGE, plan, preflight

DATA = Mount("/data", "/dev/nvme1n1", FSTAB)
DISK = "UUID=1-2 /data xfs defaults 0 2"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (DISK, [Mount("/data", "UUID=1-2", FSTAB)]),
        ("filer:/m\t/data/models/ nfs4 ro,_netdev,nofail", [Mount("/data/models", "filer:/m", FSTAB)]),
        (r"/dev/sdb /data/two\040models ext4", [Mount("/data/two models", "/dev/sdb", FSTAB)]),
        ("/dev/sdb / ext4 defaults", [Mount("/", "/dev/sdb", FSTAB)]),
        ("/srv/models /data none bind", [Mount("/data", "/srv/models", FSTAB)]),
        # Mounted when somebody asks for it, or looks.
        ("/dev/sdb /data ext4 nofail,noauto 0 2", []),
        ("filer:/m /data nfs x-systemd.automount,ro", []),
        ("filer:/m /data nfs ro,comment=systemd.automount", []),
        # No file system of a folder.
        ("/dev/sdc none swap sw 0 0", []),
        ("/dev/sdc /swapfile swap sw 0 0", []),
        ("  # /dev/sdb /data ext4 defaults", []),
        ("/dev/sdb /data", []),
        ("", []),
    ],
)
def test_what_fstab_mounts_at_boot(line: str, found: list[Mount]) -> None:
    assert mounts.of_fstab(f"{line}\n") == found


def unit(wanted: str = "", required: str = "", where: str = "/data") -> str:
    return f"Where={where}\nWhat=/dev/sdb\nId=data.mount\nRequiredBy={required}\nWantedBy={wanted}\n"


@pytest.mark.parametrize(
    ("stanza", "is_wanted"),
    [
        (unit(required="local-fs.target"), True),
        (unit(wanted="multi-user.target", required="vllm-chat.service"), True),
        # Of noauto and automount nothing but what needs it asks: instances and jobs do.
        (unit(required="vllm-chat.service", wanted="systemd-logind.service"), False),
        (unit(), False),
        # A mask has nowhere to be.
        ("Id=data.mount\nRequiredBy=local-fs.target\nWantedBy=\n", False),
    ],
)
def test_a_unit_is_to_be_mounted_where_a_target_says_so(stanza: str, is_wanted: bool) -> None:
    found = mounts.of_units("\n".join([unit(), stanza]))
    assert found == [Mount("/data", "/dev/sdb", "data.mount")] * is_wanted


def test_points_are_read_as_the_kernel_writes_them() -> None:
    info = (
        "36 35 98:0 / /data/two\\040models rw - xfs /dev/sdb rw\n37 35 0:41 / /data rw shared:2 - autofs systemd-1 rw\n"
    )
    assert mounts.points(info) == {"/data/two models", "/data"}


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ("/data", "/data/models (weights) and /data/recipes (recipes of chat)"),
        ("/data/models", "/data/models (weights)"),
        ("/data/mod", ""),
        ("/data/models/below", ""),
        ("/var", "/var/lib/x (state)"),
    ],
)
def test_what_lies_at_or_below_a_point_is_named(point: str, said: str) -> None:
    folders = {"/var/lib/x": "state", "/data/models": "weights", "/data/recipes": "recipes of chat"}
    found = mounts.problems([Mount(point, "/dev/sdb", FSTAB), Mount(point, "/dev/sdb", "data.mount")], folders)
    assert [problem.id for problem in found] == ["unmounted"] * bool(said)
    for problem in found:
        assert problem.message.startswith(f"/etc/fstab asks for /dev/sdb at {point}, but nothing is mounted there: ")
        assert f": {said} would be on another file system." in problem.message
        assert f"Mount it: mount {point} (dmesg " in problem.message
        # systemd knows a line that is gone until it reads the file again, and it would be refused by its unit.
        assert "take its line out of /etc/fstab and run systemctl daemon-reload" in problem.message


@pytest.mark.parametrize("named_in", ["fstab", "unit"])
@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("linked", [False, True])
def test_weights_below_a_point_where_nothing_is_mounted_are_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named_in: str, mounted: bool, linked: bool
) -> None:
    """A run fetched them into the folder below, and said nothing of it."""
    (tmp_path / "disk").mkdir()
    root = tmp_path / "models" if linked else tmp_path / "disk/models"
    if linked:
        root.symlink_to(tmp_path / "disk/models")
    point, before = tmp_path / "disk", gaudi_preflight.read_text
    files = {
        "/etc/fstab": f"/dev/sdb {point} xfs\n" if named_in == "fstab" else "",
        "/proc/self/mountinfo": f"9 1 8:1 / {point if mounted else '/'} rw - xfs /dev/sdb rw\n",
    }
    monkeypatch.setattr(gaudi_preflight, "read_text", lambda path: files[path] if path in files else str(before(path)))
    wanted = {"image": IMAGE, "instance": "one", "refused": "one: no config.json", "refused_id": "request"}
    units: dict[str, Answer] = {
        "systemctl show *.mount": (0, unit("local-fs.target", where=str(point)) if named_in == "unit" else "", "")
    }
    ran = run(gaudi_preflight, preflight(plans=[wanted], weights_root=str(root), weights_fetch=True), units)
    assert [found["id"] for found in ran["problems"]] == ["request"] + ["unmounted"] * (not mounted)
    assert mounted or f"{tmp_path / 'disk/models'} (weights) would be" in ran["report"]


@pytest.mark.parametrize("fetch", [False, True])
@pytest.mark.parametrize("set_up", [False, True])
def test_weights_that_an_instance_was_set_up_with_and_that_are_gone_are_told_with_their_file_system(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fetch: bool, set_up: bool
) -> None:
    """A mount over them hid them, and the advice was to fetch them there."""
    root = tmp_path / "models"
    wanted = plan(tmp_path, 0)
    wanted["requires"] = {"weights_path": str(root / "m")}
    on_node = tmp_path / "instances/one"
    on_node.mkdir(parents=True)
    (on_node / "plan.json").write_text(json.dumps(wanted) if set_up else "{")
    monkeypatch.setattr("ansible.module_utils.gaudi.node.weight_folders.PLANS", on_node.parent)
    info = tmp_path / "mountinfo"
    info.write_text(f"1 1 8:1 / / rw - ext4 /dev/sda1 rw\n9 1 0:41 / {root} rw - tmpfs none rw\n")
    monkeypatch.setattr("ansible.module_utils.gaudi.node.weight_folders.MOUNTINFO", info)
    repositories = {"huggingface": {"repository": "o/m"}}
    fetched = {"directory": "m", "repositories": repositories, "bytes": 0, "measured_cards": 0}
    source = {"fetch": fetched, "convert": None}
    known = {"weights_fetch": fetch, "source_plans": {"one": [source]}, "weights_root": str(root)}
    answers: dict[str, Answer] = {"docker image": (0, "sha256:1", ""), "systemctl show vllm-": (0, "", "")}
    ran = run(gaudi_preflight, preflight(plans=[wanted], **known), answers)
    said = ran["findings"] if fetch else [found["message"] for found in ran["problems"]]
    told = [line for line in said if f"is on the file system that is mounted at {root} now (none, tmpfs). " in line]
    assert len(told) == set_up
    assert [found["id"] for found in ran["problems"]] == (
        ["weights_source", "weights_python"] if fetch else ["weights"]
    )
