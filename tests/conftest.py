"""Let tests import what Ansible modules import."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.plugins.loader import init_plugin_loader
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

for folder in ("library", "action_plugins", "filter_plugins"):
    sys.path.insert(0, str(ROOT / folder))
sys.path.insert(0, str(ROOT))
from plugin_utils import brain

# Programs on a node import the library as ``gaudi``.
sys.path.append(str(ROOT / "module_utils"))

# So are the programs of the roles, by their own names.
sys.path += [str(folder) for folder in sorted(ROOT.glob("roles/*/files"))]

# Modules say "from ansible.module_utils.gaudi import ..."; Ansible finds it through ansible.cfg.
brain.on_path()

# What finds the lookup plugins that templates use, as ansible-playbook sets it up.
init_plugin_loader([])

# An example that is slow because the machine is busy is no failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def own_opener() -> Iterator[None]:
    """Have each test's requests find their proxies again: the first urlopen of a process and Ansible's keep theirs."""
    yield
    urllib.request.install_opener(None)  # The next urlopen makes another.
