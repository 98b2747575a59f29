"""Packages and their repository; apt itself reads them in the scenario bare."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import tarfile
import threading
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.engine.openpgp import fingerprints
from cryptography.hazmat.primitives.asymmetric import rsa

from plugin_utils import releases
from simulator import apt, context, drivers, packages, redirecting
from simulator.packages import Signer, SimulatedPackage

KEY = rsa.generate_private_key(65537, 2048)
SIGNER = Signer(KEY, "nobody <nobody@localhost>")
PACKAGE = SimulatedPackage(
    *("habanalabs-x", "1.22.2-32", "About it", ("habanalabs-y",)),
    files={"usr/bin/x": context.text("#!/bin/sh\n", 0o755)},
    scripts={"postinst": "#!/bin/sh\n"},
)


def members(archive: bytes) -> dict[str, bytes]:
    """The members of an ar archive."""
    assert archive.startswith(b"!<arch>\n")
    found, at = {}, 8
    while at < len(archive):
        size = int(archive[at + 48 : at + 58])
        found[archive[at : at + 16].decode().strip()] = archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    return found


def test_a_package_has_what_dpkg_reads() -> None:
    found = members(PACKAGE.content())
    assert list(found) == ["debian-binary", "control.tar.gz", "data.tar.gz"]
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(found["control.tar.gz"]))) as control:
        assert control.getnames() == ["./control", "./postinst"]
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(found["data.tar.gz"]))) as data:
        assert data.getmember("./usr/bin/x").mode == 0o755
    assert "Version: 1.22.2-32\nArchitecture: all\nDepends: habanalabs-y\n" in PACKAGE.control()


def test_what_is_made_twice_is_the_same() -> None:
    once, again = (packages.repository([PACKAGE], "bookworm", SIGNER) for _ in range(2))
    assert once == again


def test_the_release_names_the_index_by_its_hash() -> None:
    files = packages.repository([PACKAGE], "bookworm", SIGNER)
    index = files["dists/bookworm/main/binary-amd64/Packages"].content
    assert hashlib.sha256(index).hexdigest() in files["dists/bookworm/Release"].content.decode()
    assert f"SHA256: {hashlib.sha256(files[PACKAGE.path].content).hexdigest()}" in index.decode()


def test_the_key_has_the_fingerprint_that_our_own_reader_finds() -> None:
    assert fingerprints(SIGNER.public) == [SIGNER.fingerprint]


def test_every_release_of_the_catalogue_is_offered() -> None:
    offered = {(package.name, package.version) for package in drivers.offered()}
    wanted = {str(releases.read(name)["software"]["driver"]) for name in releases.names()}
    assert {version for name, version in offered if name == "habanalabs-dkms"} == {*wanted, drivers.NEWER}
    assert ("linux-headers-6.8.0-45-generic", "6.8.0-45.45") in offered


def test_one_suite_has_no_former_release() -> None:
    files = drivers.repository(SIGNER)
    index = files["dists/newest/main/binary-amd64/Packages"].content.decode().splitlines()
    versions = {line.removeprefix("Version: ") for line in index if line.startswith("Version:")}
    # What others need of the distribution's is in it as well.
    assert versions == {drivers.NEWER, drivers.SENSORS_VERSION}
    assert files["pool/habanalabs-dkms_1.22.2-32_all.deb"].content


def test_nodes_of_every_system_find_a_suite_of_theirs() -> None:
    files = drivers.repository(SIGNER)
    index = [files[f"dists/{suite}/main/binary-amd64/Packages"].content for suite in apt.SUITES.values()]
    assert len(set(index)) == 1
    assert b"Version: 1.22.2-32" in index[0]


def test_packages_are_at_another_server_and_indexes_are_not(tmp_path: Path) -> None:
    for path in ("dists/noble/Release", "pool/x_1_all.deb"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(path)
    server = redirecting.server(str(tmp_path), 0, f"http://{drivers.STORE}:{drivers.PORT}/", "127.0.0.1")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request("GET", "/dists/noble/Release")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"dists/noble/Release")
    for method in ("GET", "HEAD"):
        connection.request(method, "/pool/x_1_all.deb")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (302, b"")
        assert answer.headers["Location"] == f"http://{drivers.STORE}:{drivers.PORT}/pool/x_1_all.deb"
    connection.close()
    server.shutdown()
    server.server_close()


def test_the_key_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "CACHE", tmp_path)
    assert drivers.signer().fingerprint == drivers.signer().fingerprint
