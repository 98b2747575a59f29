"""Which proxy an address takes, and how programs get proxies and certificates without showing an account."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base import access

PROXY = "http://reader:p%40ss@proxy.example:3128"
PLAIN = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("address", "no_proxy", "proxied"),
    [
        ("https://hub.example/x", "", True),
        ("https://hub.example/x", "hub.example", False),
        ("https://a.hub.example/x", "hub.example", False),
        ("https://a.hub.example/x", ".hub.example", False),
        ("https://a.hub.example/x", "*.hub.example", False),
        ("https://nothub.example/x", "hub.example", True),
        ("https://HUB.example./x", "Hub.Example:443", False),
        ("https://10.1.2.3/x", "localhost, 10.0.0.0/8", False),
        ("https://10.1.2.3/x", "10.1.2.3 other", False),
        ("https://11.1.2.3/x", "10.0.0.0/8", True),
        ("https://[fd00::1]:8443/x", "fd00::/8", False),
        ("https://[fd00::1]/x", "[fd00::1]", False),
        ("https://hub.example/x", "*", False),
        # This machine itself, whatever the option is.
        ("https://localhost:8080/x", "", False),
        ("https://127.0.0.5/x", "", False),
        ("https://[::1]/x", "", False),
        ("file:///srv/debs", "", False),
        ("rsync://gaudi-02/models", "", False),
        ("https://hub.example/x", ",. ,", True),
    ],
)
def test_an_address_takes_the_proxy_unless_its_host_is_an_exception(address: str, no_proxy: str, proxied: bool) -> None:
    assert bool(access.proxy_of(address, PROXY, PROXY, no_proxy)) is proxied


def test_each_scheme_has_its_proxy() -> None:
    assert access.proxy_of("http://a.example", PLAIN, PROXY, "") == PLAIN
    assert access.proxy_of("https://a.example", PLAIN, PROXY, "") == PROXY
    assert access.proxy_of("https://a.example", PLAIN, "", "") == ""


def test_an_account_is_in_files_and_in_no_variable() -> None:
    environment = access.environment(PROXY, PROXY, ".example.com", certificates=True)
    assert environment["APT_CONFIG"] == access.APT_CONF
    assert environment["no_proxy"] == "localhost,127.0.0.1,::1,.example.com"
    assert {environment[name] for name in access.BUNDLE_VARIABLES} == {access.BUNDLE}
    assert "p%40ss" not in json.dumps(environment)
    assert f'Acquire::https::Proxy "{PROXY}";' in access.apt_conf(PROXY, PROXY, bundle="")


def test_a_proxy_without_an_account_is_in_the_environment_as_well() -> None:
    assert access.environment(PLAIN, "", "", certificates=False)["http_proxy"] == PLAIN


def test_a_site_that_sets_nothing_changes_nothing() -> None:
    assert access.environment("", "", "10.0.0.0/8", certificates=False) == {}
    assert access.apt_conf("", "", bundle="") == ""
    assert access.dnf_access("https://mirror.example/x", "", "", "", "") == {"baseurl": "https://mirror.example/x"}


def test_dnf_gets_the_account_apart() -> None:
    """dnf quotes the address of a repository that it cannot read."""
    assert access.dnf_access("https://me:p%25w@mirror.example/x", "", PROXY, "", "/ca") == {
        "baseurl": "https://mirror.example/x",
        "username": "me",
        "password": "p%w",
        "proxy": PLAIN,
        "proxy_username": "reader",
        "proxy_password": "p@ss",
        "sslcacert": "/ca",
    }
    direct = access.dnf_access("https://mirror.example/x", "", PROXY, "mirror.example", "")
    assert direct == {"baseurl": "https://mirror.example/x"}


@pytest.mark.parametrize("address", ["https://me:p%40ss@index.example/simple", "http://index.example:8091/simple"])
def test_pip_reads_index_and_proxy_as_they_are_given(tmp_path: Path, address: str) -> None:
    (tmp_path / "pip.conf").write_text(access.pip_conf(address, PROXY))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    command = [sys.executable, "-m", "pip", "config", "list"]
    read = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    assert f"install.index-url='{address}'\n" in read
    assert f"install.proxy='{PROXY}'\n" in read
    assert ("install.trusted-host='index.example'\n" in read) is address.startswith("http://")


@pytest.mark.parametrize(
    ("registry", "folder"),
    [
        ("vault.habana.ai", "vault.habana.ai"),
        ("registry.example:5000/gaudi/vllm", "registry.example:5000"),
        ("https://u:p@mirror.example:8443/x", "mirror.example:8443"),
        ("localhost/gaudi", "localhost"),
        ("gaudi-serving/vllm", None),
        ("../../etc", None),
        ("", None),
    ],
)
def test_a_registry_has_a_certificate_of_ours_beside_those_of_others(registry: str, folder: str | None) -> None:
    wanted = [{"path": f"/etc/docker/certs.d/{folder}/gaudi-serving.crt", "content": "PEM"}] if folder else []
    assert access.registry_certificates([registry, registry], "PEM") == wanted
    assert [file["state"] for file in access.registry_certificates([registry], "")] == ["absent"] * len(wanted)
