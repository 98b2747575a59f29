from __future__ import annotations

import pytest

from simulator import apt

DEB822 = """\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb deb-src
URIs: http://mirror.example/debian-security/
Suites: bookworm-security
Components: main
"""
ONE_LINE = """\
# deb http://old.example/debian bookworm main
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg arch=amd64] https://mirror.example/debian bookworm main
deb-src https://mirror.example/debian bookworm main
deb https://mirror.example/security bookworm-security main
"""


def test_both_formats_are_read() -> None:
    assert apt.parse_sources(DEB822) == [
        ("http://mirror.example/debian", "bookworm"),
        ("http://mirror.example/debian", "bookworm-updates"),
        ("http://mirror.example/debian-security/", "bookworm-security"),
    ]
    assert apt.parse_sources(ONE_LINE) == [
        ("https://mirror.example/debian", "bookworm"),
        ("https://mirror.example/security", "bookworm-security"),
    ]


@pytest.mark.parametrize(
    "stanza",
    [
        "Types: deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm\n",
        "Types: deb\nEnabled: no\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main\n",
        "",
    ],
)
def test_sources_without_packages_are_left_out(stanza: str) -> None:
    assert apt.parse_sources(stanza) == []


@pytest.mark.parametrize(
    "source",
    [
        "deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.asc] https://download.example/linux/debian bookworm stable",
        "deb [signed-by=/usr/share/keyrings/vendor.gpg] https://apt.vendor.example bookworm main",
        "deb https://download.example/linux/debian bookworm stable",
        "Types: deb\nURIs: https://vendor.example\nSuites: bookworm\nComponents: main\nSigned-By: /etc/keys/v.asc\n",
        "Types: deb\nURIs: https://apt.vendor.example\nSuites: bookworm\nComponents: main\nSigned-By:\n"
        " -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n -----END PGP PUBLIC KEY BLOCK-----\n",
    ],
)
def test_a_vendors_source_for_the_same_suite_is_no_mirror_of_debians(source: str) -> None:
    assert apt.choose_mirrors(apt.parse_sources(f"{source}\n\n{DEB822}")).main == "http://mirror.example/debian"


def test_the_machines_own_mirrors_are_taken() -> None:
    assert apt.choose_mirrors(apt.parse_sources(DEB822)) == apt.Mirrors(
        "http://mirror.example/debian", "http://mirror.example/debian-security"
    )


@pytest.mark.parametrize(
    "sources",
    [
        [],
        [("http://archive.ubuntu.com/ubuntu", "noble"), ("http://security.ubuntu.com/ubuntu", "noble-security")],
        [("file:/srv/mirror", "bookworm"), ("mirror+file:/etc/apt/mirrors.list", "bookworm-security")],
    ],
)
def test_another_systems_or_a_local_mirror_is_not(sources: list[tuple[str, str]]) -> None:
    assert apt.choose_mirrors(sources) == apt.Mirrors()


def test_only_the_way_to_the_mirrors_goes_into_the_node() -> None:
    dump = """\
APT::Architecture "amd64";
Acquire "";
Acquire::http::Proxy "http://proxy.example:3128";
Acquire::http::Proxy::internal.example "DIRECT";
Acquire::http::Proxy-Auto-Detect "/usr/bin/detect";
Acquire::https::Proxy "";
Acquire::Check-Valid-Until "false";
Acquire::Retries "3";
Acquire::Languages:: "none";
Dir::Etc::sourceparts "sources.list.d";
DPkg::Post-Invoke:: "rm -f /var/cache/apt/archives/*.deb || true";
"""
    assert apt.transport_options(dump, {}) == (
        'Acquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::http::Proxy::internal.example "DIRECT";\n'
        'Acquire::Check-Valid-Until "false";\n'
        'Acquire::Retries "3";\n'
    )


def test_the_environments_proxy_fills_what_apt_leaves_open() -> None:
    environment = {"http_proxy": "http://env.example:1", "https_proxy": "http://env.example:2"}
    options = apt.transport_options('Acquire::http::Proxy "http://apt.example:3";\n', environment)
    assert options == 'Acquire::http::Proxy "http://apt.example:3";\nAcquire::https::Proxy "http://env.example:2";\n'
    assert apt.Configuration(apt.Mirrors(), options).proxy == "http://apt.example:3"
    assert apt.Configuration(apt.Mirrors(), "").proxy is None


def test_what_the_node_gets_can_be_read_back() -> None:
    mirrors = apt.Mirrors("http://a.example/debian", "http://b.example/security")
    assert apt.choose_mirrors(apt.parse_sources(apt.sources_list(mirrors))) == mirrors


def test_a_node_of_another_suite_comes_from_the_machines_mirrors_too() -> None:
    """A mirror of the machine's suite has Debian's other suites beside it."""
    mirrors = apt.choose_mirrors(apt.parse_sources(DEB822), "trixie")
    assert mirrors == apt.Mirrors("http://mirror.example/debian", "http://mirror.example/debian-security")
    files = apt.Configuration(mirrors, "", "trixie").files
    sources = files["etc/apt/sources.list.d/debian.sources"].content.decode()
    assert "Suites: trixie trixie-updates" in sources
    assert "Suites: trixie-security" in sources
    assert "bookworm" not in sources


def test_a_machines_source_of_the_nodes_own_suite_comes_first() -> None:
    own = apt.parse_sources("deb http://new.example/debian trixie main\n")
    assert apt.choose_mirrors([*apt.parse_sources(DEB822), *own], "trixie").main == "http://new.example/debian"
    assert apt.choose_mirrors(own, "bookworm").main == "http://new.example/debian"
