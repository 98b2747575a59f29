"""Files that git and pip read in a build: mirrors, and passwords that they never show."""

from __future__ import annotations

import base64
import configparser
import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.image.addresses import (
    APT_KEY,
    apt_key,
    apt_sources,
    check_reached,
    git_config,
    pip_config,
    unknown_to_builds,
)

ROOT = Path(__file__).resolve().parents[3]


def asked_of_git(config: str, folder: Path, *arguments: str) -> str:
    (folder / "config").write_text(config)
    environment = {"GIT_CONFIG_GLOBAL": str(folder / "config"), "PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", *arguments], check=True, capture_output=True, text=True, env=environment, cwd=folder
    ).stdout.strip()


def test_git_asks_the_mirror(tmp_path: Path) -> None:
    config = git_config({"https://github.com/": "https://git.example.com/github/"}, [])
    address = "https://github.com/HabanaAI/vllm-fork"
    assert asked_of_git(config, tmp_path, "ls-remote", "--get-url", address) == (
        "https://git.example.com/github/HabanaAI/vllm-fork"
    )


def test_git_says_who_it_is_to_that_host_alone(tmp_path: Path) -> None:
    config = git_config({}, [{"address": "https://git.example.com", "username": "reader", "password": 's"ecret'}])
    header = "Authorization: Basic " + base64.b64encode(b'reader:s"ecret').decode()
    ask = ("config", "--get-urlmatch", "http.extraHeader")
    assert asked_of_git(config, tmp_path, *ask, "https://git.example.com/x/y") == header
    with pytest.raises(subprocess.CalledProcessError):
        asked_of_git(config, tmp_path, *ask, "https://github.com/x/y")
    assert 's"ecret' not in config


def test_pip_asks_the_indexes_in_order() -> None:
    said = pip_config(["http://reader:p%40ss@index.example.com:8091/simple", "https://other.example.com/simple"])
    # As pip does: it expands no %.
    parsed = configparser.RawConfigParser()
    parsed.read_string(said)
    assert parsed["global"]["index-url"] == "http://reader:p%40ss@index.example.com:8091/simple"
    assert parsed["global"]["extra-index-url"].split() == ["https://other.example.com/simple"]
    assert parsed["global"]["trusted-host"].split() == ["index.example.com:8091"]


def test_without_an_index_the_images_own_counts() -> None:
    assert pip_config([]) == ""


def test_lines_cannot_be_smuggled_in() -> None:
    with pytest.raises(Refusal) as caught:
        pip_config(["https://a/simple\n[install]"])
    assert caught.value.id == "wrong_form"
    with pytest.raises(Refusal):
        git_config({"https://github.com/": "https://x/\n[core]\n\tsshCommand = id"}, [])


@pytest.mark.parametrize("password", [12345678901, "line\nbreak", None, ["x"]])
def test_what_may_hold_a_password_is_in_no_sentence(password: object) -> None:
    with pytest.raises(Refusal) as caught:
        git_config({}, [{"address": "https://git.example.com", "username": "reader", "password": password}])
    assert "12345678901" not in str(caught.value)
    with pytest.raises(Refusal) as caught:
        pip_config(["https://reader:p ss@index.example.com/simple"])
    assert "p ss" not in str(caught.value)


KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQINBFit\n=abcd\n-----END PGP PUBLIC KEY BLOCK-----\n"


@pytest.mark.parametrize(
    "said",
    [KEY, f"\n{KEY}\n", KEY.replace("\n", "\r\n"), KEY.rstrip(), KEY.replace("\n\n", "\nVersion: GnuPG v2\n\n")],
)
def test_a_key_of_apt_is_one_block_as_apt_reads_it(said: str) -> None:
    assert apt_key(said).replace("Version: GnuPG v2\n", "") == KEY
    assert apt_key("") == ""


@pytest.mark.parametrize(
    "said", ["/etc/hidden.asc", KEY.replace("PUBLIC", "PRIVATE"), KEY.replace("\n\n", "\n"), KEY + KEY, KEY[:-20]]
)
def test_what_is_no_public_key_is_refused_and_not_shown(said: str) -> None:
    with pytest.raises(Refusal, match="serving_image_apt_key must be one block") as caught:
        apt_key(said)
    assert caught.value.id == "wrong_apt_key"
    assert "hidden" not in str(caught.value)
    assert "mQINBFit" not in str(caught.value)


def test_each_source_names_the_key_unless_it_names_one() -> None:
    said = "# Mine\ndeb http://a/ubuntu noble main # x\ndeb-src [ arch=amd64 ] http://b/ ./\n\n"
    assert apt_sources(said) == "deb http://a/ubuntu noble main\ndeb-src [ arch=amd64 ] http://b/ ./\n"
    assert apt_sources(said, KEY).splitlines() == [
        f"deb [signed-by={APT_KEY}] http://a/ubuntu noble main",
        f"deb-src [arch=amd64  signed-by={APT_KEY}] http://b/ ./",
    ]
    own = "deb [arch=amd64 Signed-By=/usr/share/keyrings/x.gpg] http://a/ubuntu noble main\n"
    assert apt_sources(own, KEY) == own


def test_the_key_is_where_a_step_puts_it() -> None:
    steps = ROOT / "roles/serving_image/files/gaudi_image/context/steps.sh"
    assert f"\napt_key={APT_KEY}\n" in steps.read_text(encoding="utf-8")
    # What apt trusts by itself.
    assert not APT_KEY.startswith("/etc/apt/trusted.gpg")


@pytest.mark.parametrize("sources", ["", "# deb http://mirror/ubuntu noble main\n"])
def test_a_key_for_no_source_is_refused(sources: str) -> None:
    with pytest.raises(Refusal, match="Name the sources there that the key signs") as caught:
        apt_sources(sources, KEY)
    assert caught.value.id == "key_without_sources"
    assert apt_sources(sources) == ""


def test_names_that_a_build_would_not_know_are_brought() -> None:
    names = ["git-host", "index.example.com"]
    own = "127.0.0.1 localhost\n10.0.0.5 git-host git # ours\n"
    assert unknown_to_builds(names, own, "nameserver 10.0.0.53\n") == ["git-host"]
    assert unknown_to_builds(names, "", "nameserver 10.0.0.53\n") == []
    # What answers on the node alone answers no build: BuildKit leaves such a server out.
    assert unknown_to_builds(names, "", "nameserver 127.0.0.11\noptions ndots:0\n") == names
    assert unknown_to_builds([*names, "10.0.0.9", "fe80::1"], "", "nameserver ::1\n") == names


INDEXES = "serving_image_python_indexes"


@pytest.mark.parametrize(
    ("host", "address", "shown"),
    [
        ("127.0.0.1", "127.0.0.1", "from 127.0.0.1 (in serving_image_python_indexes),"),
        ("::1", "::1", "from ::1 (in serving_image_python_indexes),"),
        ("localhost", "localhost", "from localhost (in serving_image_python_indexes),"),
        # What Debian calls a node's own name.
        ("gaudi-01", "127.0.1.1", "from gaudi-01 (in serving_image_python_indexes; 127.0.1.1 on the node),"),
    ],
)
def test_a_mirror_on_loopback_is_not_asked_from_another_network(host: str, address: str, shown: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_reached("default", [("index.example.com", "10.0.0.9", "x"), (host, address, INDEXES)])
    assert caught.value.id == "mirror_on_loopback"
    assert shown in str(caught.value)
    check_reached("host", [(host, address, INDEXES)])
