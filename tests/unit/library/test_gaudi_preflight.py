"""gaudi_preflight: which cards it judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from library import gaudi_preflight
from tests.unit.host.modules import run_main

ROOT = Path(__file__).resolve().parents[3]
TOPOLOGY: dict[str, Any] = {"cards": [], "findings": [], "driver_version": None}
FINDING = {"id": "unreadable", "severity": "warning", "message": "cards.lock is damaged."}


@pytest.mark.parametrize("given", [{**TOPOLOGY, "driver_version": "1.22.1-x"}, None])
def test_preflight_reads_the_cards_only_where_nobody_did(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any] | None
) -> None:
    monkeypatch.setattr(gaudi_preflight, "systemctl", lambda *_: "")
    monkeypatch.setattr(gaudi_preflight, "read_topology", lambda _module: {**TOPOLOGY, "findings": []})
    monkeypatch.setattr(gaudi_preflight, "read_holders", lambda: ({}, [FINDING]))
    inventory = {
        "gaudi_release": "1.22",
        "gaudi_expected_cards": 8,
        "gaudi_image_registry": "vault.habana.ai",
        "gaudi_weights_root": "/data/models",
        "gaudi_weights_fetch": False,
        "gaudi_serving_instances": [],
    }
    arguments = {
        "host": "gaudi-01",
        "release": "1.22",
        "known_releases": ["1.22"],
        "inventory": inventory,
        "levels": yaml.safe_load((ROOT / "catalog/compatibility.yml").read_text()),
        "controller_time": 0,
        "daemon_json": "/nonexistent/daemon.json",
        **({} if given is None else {"topology": given}),
    }
    answer = run_main("library.gaudi_preflight", arguments)
    assert answer["topology"] == (given or {**TOPOLOGY, "findings": [FINDING]})
    assert (FINDING["message"] in answer["findings"]) is (given is None)
