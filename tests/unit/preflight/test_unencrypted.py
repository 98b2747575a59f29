"""Accounts that would cross the network without TLS: a finding of the preflight that names option and host."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader

from action_plugins import role_options as action
from plugin_utils import role_options

ACCOUNT = {"username": "me", "password": "hidden"}


def found(**site: Any) -> list[str]:
    problems, findings, _ = action.judged(role_options.HostOptions(DataLoader(), site))
    assert problems == []
    assert "hidden" not in str(findings)
    return [said for said in findings if "without TLS" in said]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("serving_image_python_indexes", ["https://safe.example/simple", "http://me:hidden@mirror.example/simple"]),
        ("serving_image_git_accounts", [{"address": "http://mirror.example", **ACCOUNT}]),
        ("serving_image_git_mirrors", {"https://github.com/": "http://me:hidden@mirror.example/"}),
        ("serving_image_apt_sources", "deb [arch=amd64] http://me:hidden@mirror.example/ubuntu jammy main\n"),
        ("container_runtime_habana_repository", "http://me:hidden@mirror.example/debian"),
        ("container_runtime_rhel_repository", "http://me:hidden@mirror.example/rhel/$releasever"),
        ("container_runtime_rhel_key", "http://me:hidden@mirror.example/gpg"),
        ("gaudi_driver_repository", "http://me:hidden@mirror.example/debian"),
        ("model_weights_python_index", "http://me:hidden@mirror.example/simple"),
    ],
)
def test_an_account_without_tls_is_reported_with_option_and_host(option: str, value: Any) -> None:
    (said,) = found(**{option: value})
    assert option in said
    assert "mirror.example" in said
    assert "safe.example" not in said


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("serving_image_python_indexes", ["https://me:hidden@mirror.example/simple", "http://mirror.example/simple"]),
        ("serving_image_python_indexes", ["http://me:hidden@127.0.0.1:3141/simple", "http://me:hidden@[::1]/simple"]),
        ("serving_image_git_accounts", [{"address": "https://mirror.example", **ACCOUNT}]),
        ("serving_image_git_mirrors", {"git@github.com:": "file:///srv/git"}),
        ("serving_image_apt_sources", "deb http://mirror.example/ubuntu jammy main\n# http://me:hidden@x/\n"),
        # Every proxy is asked without TLS.
        ("gaudi_https_proxy", "http://me:hidden@proxy.example:3128"),
    ],
)
def test_nothing_is_reported_of_what_nobody_on_the_way_reads(option: str, value: Any) -> None:
    assert found(**{option: value}) == []
