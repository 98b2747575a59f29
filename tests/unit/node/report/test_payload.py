"""What is sent to a node in order to read it: small, and nothing that plans or decides about models."""

from __future__ import annotations

import base64
import io
import re
import zipfile
from pathlib import Path

import pytest
from ansible.executor.module_common import modify_module
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar

ROOT = Path(__file__).resolve().parents[4]
# KiB of the zipped module with all that it imports; 113 of them are Ansible's own.
LIMIT_KIB = 300
# Packages that stay on the controller.
NOT_SENT = {"batch", "benchmark", "calibration", "families", "fanout", "pages", "planning", "plugin_buckets", "request"}


@pytest.fixture(scope="module")
def payload() -> bytes:
    """The archive that Ansible sends with node_report."""
    init_plugin_loader()
    built = modify_module(
        module_name="node_report",
        module_path=str(ROOT / "library" / "node_report.py"),
        module_args={},
        templar=Templar(loader=DataLoader()),
        task_vars={"ansible_python_interpreter": "/usr/bin/python3"},
        module_compression="ZIP_DEFLATED",
    )
    (longest,) = sorted(re.findall(rb"[A-Za-z0-9+/=\n]{1000,}", built.b_module_data), key=len)[-1:]
    return base64.b64decode(longest)


def test_the_payload_is_small(payload: bytes) -> None:
    assert len(payload) / 1024 < LIMIT_KIB


def test_nothing_that_plans_is_sent(payload: bytes) -> None:
    names = zipfile.ZipFile(io.BytesIO(payload)).namelist()
    sent = {
        name.split("/")[3] for name in names if name.startswith("ansible/module_utils/gaudi/") and name.count("/") > 3
    }
    assert {"cards", "node", "serving"} <= sent
    assert not sent & NOT_SENT


def test_sentences_about_cards_bring_no_other_faults(payload: bytes) -> None:
    names = zipfile.ZipFile(io.BytesIO(payload)).namelist()
    assert not [name for name in names if name.endswith(("faults/known.py", "faults/server.py", "faults/hub.py"))]
