"""While an index of packages is read through the site's proxy, no program inherits the account of that proxy."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils.gaudi.node import apt

from library import gaudi_preflight

ACCOUNT = "http://user:S3cret@proxy.example:3128"
REPOSITORY = "https://vault.example/debian"


def test_no_program_inherits_the_account_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    asked: list[dict[str, str]] = []

    def program(*_arguments: Any, **_options: Any) -> tuple[int, str, str]:
        seen.append(dict(os.environ))
        return 0, "", ""

    def index(*_arguments: Any) -> str:
        asked.append(dict(os.environ))
        return ""

    monkeypatch.setattr(apt, "read_sources", list)
    monkeypatch.setattr(gaudi_preflight, "index_of", index)
    params = {
        "habana_source": {"repository": REPOSITORY, "suite": "jammy"},
        "http_proxy": ACCOUNT,
        "https_proxy": ACCOUNT,
        "no_proxy": "",
        "certificates": "",
    }
    module: Any = SimpleNamespace(params=params, run_command=program, get_bin_path=lambda name, **_: f"/usr/bin/{name}")
    gaudi_preflight.read_indexes(module, "debian", "", {"habana": ["habanalabs-container-runtime"]})
    assert seen and not any("S3cret" in str(environment) for environment in seen)
    # The request itself goes through it.
    assert "S3cret" in str(asked)
