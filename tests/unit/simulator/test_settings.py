from __future__ import annotations

import pytest

from simulator import kernel, wheelhouse
from simulator.settings import ROOT, Scope, SimulatorError


@pytest.mark.parametrize("name", ["", "Demo", "a/b", "-a", "a-", "a\n", "a" * 33, "../a"])
def test_a_scope_name_is_safe_in_names_and_paths(name: str) -> None:
    with pytest.raises(SimulatorError, match="is no scope name"):
        Scope(name)


def test_scopes_do_not_collide() -> None:
    demo, other = Scope("demo"), Scope("molecule-default")
    assert demo.prefix != other.prefix
    assert demo.directory != other.directory
    assert demo.labels == {"gaudi-serving.simulator": "demo", "gaudi-serving.simulator.checkout": str(ROOT)}


def test_only_settings_that_changed_are_put_back() -> None:
    before = {"vm.nr_hugepages": "0", "kernel.numa_balancing": "1", "gone": "3"}
    now = {"vm.nr_hugepages": "64", "kernel.numa_balancing": "1"}
    assert kernel.differences(before, now) == {"vm.nr_hugepages": ("64", "0")}


def test_wheels_for_older_systems_are_taken_too() -> None:
    tags = wheelhouse.platforms()
    assert tags[0] == "manylinux_2_36_x86_64"
    assert {"manylinux_2_5_x86_64", "manylinux_2_28_x86_64", "manylinux2014_x86_64"} <= set(tags)
    assert "manylinux_2_37_x86_64" not in tags
