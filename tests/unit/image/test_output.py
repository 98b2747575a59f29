"""What BuildKit prints: how far a build is, and why it failed. The lines are those of docker 20.10 and 26."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.base.access import BUNDLE
from ansible.module_utils.gaudi.image.output import Follower, failure

TITLES = ["packages of the system", "vllm_fork at 4cd8c0613", "the fork's requirements"]


def test_progress_counts_steps_and_names_the_one_that_runs() -> None:
    follower = Follower(TITLES)
    assert follower.progress == {"phase": "build: the base image", "done": 0, "total": 3, "unit": "steps"}
    for line in (
        "#1 [internal] load build definition from Dockerfile",
        "#1 DONE 0.0s",
        "#5 [1/4] FROM vault.habana.ai/x:1",
        "#5 CACHED",
        "#6 [2/4] RUN --mount=type=bind,target=/run/gaudi-build     sh ...",
        "#6 CACHED",
        "#7 [stage-0 3/4] RUN --mount=type=bind,target=/run/gaudi-build     sh ...",
        "#7 0.412 remote: Counting objects",
    ):
        follower.add(line)
    assert follower.progress == {"phase": "build: vllm_fork at 4cd8c0613", "done": 1, "total": 3, "unit": "steps"}
    assert follower.add("#7 DONE 3.2s")
    assert not follower.add("#8 0.1 something")
    assert follower.progress["done"] == 2


@pytest.mark.parametrize(
    ("lines", "id_", "words"),
    [
        (
            ["#7 1.2 gaudi-image refused commit_not_in_repository: https://x/y has no commit abc. Correct it."],
            "commit_not_in_repository",
            "https://x/y has no commit abc. Correct it.",
        ),
        (
            [
                "#7 0.5 fatal: unable to access 'http://git:8092/HabanaAI/vllm-fork/': Failed to connect to git port "
                "8092: Connection refused",
            ],
            "git-host-unreachable",
            "Nothing could be fetched from http://git:8092/HabanaAI/vllm-fork/: Failed to connect to git port 8092",
        ),
        (
            [
                "#7 0.5 fatal: unable to access 'https://git.example/x/': SSL certificate problem: unable to get local "
                "issuer certificate"
            ],
            "certificate-not-trusted",
            "unable to get local issuer certificate",
        ),
        (
            ["#7 0.5 fatal: unable to access 'https://git/x/': server certificate verification failed. CAfile: none"],
            "certificate-not-trusted",
            "gaudi_ca_certificates",
        ),
        (
            [
                "#7 0.5 WARNING: Retrying (Retry(total=0)) after connection broken by 'SSLError("
                "SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
                "self-signed certificate in certificate chain (_ssl.c:992)'))': /simple/x/",
                "#7 0.6 ERROR: Could not find a version that satisfies the requirement x",
                "#7 0.6 ERROR: No matching distribution found for x",
            ],
            "certificate-not-trusted",
            "self-signed certificate",
        ),
        (
            [
                "#7 0.5 E: Failed to fetch https://mirror/x  Certificate verification failed: The certificate is NOT "
                "trusted. The certificate issuer is unknown.  Could not handshake"
            ],
            "certificate-not-trusted",
            "NOT trusted",
        ),
        (
            ["#9 2.0 fatal: could not read Username for 'https://git.example.com': terminal prompts disabled"],
            "git-account-refused",
            "https://git.example.com lets nobody read without an account, or does not know the one",
        ),
        (
            ["#9 2.0 fatal: Authentication failed for 'https://git.example.com/me/fork/'"],
            "git-account-refused",
            "serving_image_git_accounts",
        ),
        # A proxy may say so, too.
        (
            [
                "#9 2.0 fatal: unable to access 'https://git.example.com/me/fork/': The requested URL returned error: "
                "403",
            ],
            "git-host-unreachable",
            "Nothing could be fetched from https://git.example.com/me/fork/: The requested URL returned error: 403.",
        ),
        (
            [
                "#9 3.1 ERROR: Could not find a version that satisfies the requirement triton==3.1.0 (from versions: "
                "none)",
                "#9 3.2 ERROR: No matching distribution found for triton==3.1.0",
            ],
            "no-wheel",
            "has no triton==3.1.0 for this",
        ),
        (
            [
                "#9 1.0 WARNING: Retrying (Retry(total=0, ...)) after connection broken by 'NewConnectionError("
                "\"HTTPConnection(host='index', port=8091): Failed to establish a new connection\")': /simple/ray/",
                "#9 9.0 ERROR: No matching distribution found for ray",
            ],
            "index-unreachable",
            "The Python index index does not answer",
        ),
        # pip 22 and 23, whose urllib3 names no host.
        (
            [
                "#9 0.9 Looking in indexes: http://***@index:8094/simple",
                "#9 1.0 WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after "
                "connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPConnection object at "
                "0x7f32>: Failed to establish a new connection: [Errno 111] Connection refused')': /simple/ray/",
                "#9 9.0 ERROR: Could not find a version that satisfies the requirement ray (from versions: none)",
                "#9 9.0 ERROR: No matching distribution found for ray",
            ],
            "index-unreachable",
            "The Python index http://***@index:8094/simple does not answer",
        ),
        (
            ["#9 1.0 WARNING: Retrying (...) after connection broken by 'ReadTimeoutError()': /simple/ray/"],
            "index-unreachable",
            "The Python index https://pypi.org/simple does not answer",
        ),
        (
            [
                "#9 1.0 Collecting other",
                "#9 1.0 Obtaining file:///opt/vllm-fork",
                "#9 1.9   \u00d7 Preparing editable metadata (pyproject.toml) did not run successfully.",
                "#9 2.0       RuntimeError: Unknown runtime environment",
                "#9 2.0 hint: See above for details.",
            ],
            "package-not-built",
            "file:///opt/vllm-fork could not be built",
        ),
        (
            ["#9 1.0 ERROR: Cannot install a==1 and b because these package versions have conflicting dependencies."],
            "requirements-conflict",
            "Cannot install a==1 and b",
        ),
        # pip 23.0.1 says the same of a package that the index has not, when a constraint names it; then the step asks.
        (
            [
                "#11 1.9 ERROR: Cannot install simulated-common>=1 because these package versions have conflicting "
                "dependencies.",
                "#11 1.9 ",
                "#11 1.9 The conflict is caused by:",
                "#11 1.9     The user requested simulated-common>=1",
                "#11 1.9     The user requested (constraint) simulated-common<20",
                "#11 2.6 WARNING: pip index is currently an experimental command. It may be removed/changed in a "
                "future release without prior warning.",
                "#11 2.7 ERROR: No matching distribution found for simulated-common",
            ],
            "no-wheel",
            "The Python index has no simulated-common for this",
        ),
        (
            ["#9 8.0 error: command 'cc' failed", "#9 8.1 ERROR: Failed building wheel for pillow-simd"],
            "package-not-built",
            "pillow-simd could not be built",
        ),
        (
            ["#9 8.0 ERROR: Failed building wheel for x", "#9 8.1 OSError: [Errno 28] No space left on device"],
            "disk-full",
            "Make room",
        ),
        (
            ["#9 1.0 fatal: unable to access 'https://github.com/x/': CONNECT tunnel failed, response 403"],
            "proxy-refuses",
            "(http://***@proxy:3128: response 403)",
        ),
        (
            [
                "#9 1.0 WARNING: Retrying (Retry(total=0)) after connection broken by 'ProxyError('Cannot connect to "
                "proxy.', NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>'))': /x/",
                "#9 9.0 ERROR: No matching distribution found for ray",
            ],
            "proxy-unreachable",
            "The proxy does not answer (http://***@proxy:3128: Cannot connect to proxy)",
        ),
        # git, which names the proxy as it names any host.
        (
            [
                "#9 0.5 fatal: unable to access 'http://git:8092/HabanaAI/vllm-fork/': Failed to connect to proxy port "
                "3128 after 0 ms: Couldn't connect to server",
            ],
            "proxy-unreachable",
            "The proxy does not answer (http://***@proxy:3128: Cannot connect to proxy)",
        ),
        (
            ["#9 0.5 fatal: unable to access 'http://git:8092/HabanaAI/vllm-fork/': Could not resolve proxy: proxy"],
            "proxy-unreachable",
            "The proxy does not answer (http://***@proxy:3128: Could not resolve proxy). Correct",
        ),
        (["#9 1.0 E: Unable to locate package numactl"], "no-system-package", "have no numactl"),
        (
            ["#9 1.0 E: Failed to fetch http://archive.ubuntu.com/x.deb  Could not connect", "#9 1.1 E: Unable to"],
            "package-source-unreachable",
            "http://archive.ubuntu.com/x.deb could not be fetched",
        ),
        (
            ["#9 1.0 E: Failed to fetch http://archive.ubuntu.com/x_1_all.deb  404  Not Found [IP: 91.189.91.81 80]"],
            "package-file-gone",
            "name: http://archive.ubuntu.com/x_1_all.deb. Run apt-get update in the same step",
        ),
        # apt of Debian 12, whose update only warns.
        (
            [
                "#17 8.275 W: Failed to fetch http://mirror:1/debian/dists/bookworm/InRelease  Could not connect to "
                "mirror:1 (172.24.0.6). - connect (111: Connection refused)",
                "#17 8.275 W: Some index files failed to download. They have been ignored, or old ones used instead.",
                "#17 8.284 E: Package 'autoconf' has no installation candidate",
            ],
            "package-source-unreachable",
            "http://mirror:1/debian/dists/bookworm/InRelease could not be fetched. Name a mirror in",
        ),
        # apt of Debian 12, of a mirror with a key that the image does not know.
        (
            [
                "#17 2.1 W: GPG error: http://mirror:8096 bookworm Release: The following signatures couldn't be "
                "verified because the public key is not available: NO_PUBKEY 0123456789ABCDEF",
                "#17 2.1 E: The repository 'http://mirror:8096 bookworm Release' is not signed.",
            ],
            "package-source-not-signed",
            "http://mirror:8096 is signed by no key that the build trusts it by. Name its public key in",
        ),
        (
            ["#17 2.1 E: The repository 'http://mirror:8096 jammy Release' does not have a Release file."],
            "package-source-unreachable",
            "http://mirror:8096 could not be fetched",
        ),
        # The client of Docker 20.10, when dockerd was killed.
        (
            [
                "#9 1.0 Collecting ray",
                "error: failed to receive status: rpc error: code = Unavailable desc = error reading from server: EOF",
            ],
            "build-engine-ended",
            "The Docker engine ended while it built",
        ),
        # The same client, when dockerd was killed a second after the step began.
        (["#15 0.200 begun", "unexpected EOF"], "build-engine-ended", "The Docker engine ended while it built"),
        (["#9 1.0 make: *** [Makefile:12: all] Error 1"], "not-compiled", "[Makefile:12: all] Error 1"),
        (
            ["#9 1.0 something nobody knows", "#9 ERROR: exit code: 3", "------"],
            "build_failed",
            "Its last words: something nobody knows",
        ),
    ],
)
def test_each_fault_is_a_sentence_with_what_to_try(lines: list[str], id_: str, words: str) -> None:
    refusal = failure("the fork's requirements", ["#1 DONE 0.0s", *lines], ["http://***@proxy:3128"])
    assert refusal.id == id_
    assert words in str(refusal)
    assert str(refusal).startswith("The image could not be built, at the fork's requirements")
    # What a step says itself is about what stays wrong until somebody repairs it.
    assert str(refusal).endswith("goes on from there.") == (id_ != "commit_not_in_repository")


def test_a_build_that_says_nothing() -> None:
    assert "Its last words: nothing" in str(failure("the base image", []))


def test_a_line_without_end_is_quoted_in_part() -> None:
    assert len(str(failure("x", [f"#7 1.0 {'ERROR: Cannot install ' * 100_000}"]))) < 10_000


@pytest.mark.parametrize(
    ("line", "server"),
    [
        (
            "fatal: unable to access 'https://git.example/x/': SSL certificate problem: unable to get issuer",
            "git.example",
        ),
        (
            "Could not fetch URL https://pypi.example/simple/x/: HTTPSConnectionPool(host='pypi.example', port=443): "
            "Max retries (Caused by SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate "
            "verify failed: unable to get local issuer certificate (_ssl.c:1000)')))",
            "pypi.example",
        ),
        (
            "W: Failed to fetch https://deb.example/debian/x  Certificate verification failed: The certificate is NOT "
            "trusted. The certificate issuer is unknown.  Could not handshake",
            "deb.example",
        ),
    ],
)
def test_a_certificate_is_not_blamed_on_certificates_that_the_build_has(line: str, server: str) -> None:
    without, given = (failure("x", [f"#7 0.5 {line}"], ca_file=path) for path in ("", BUNDLE))
    assert {without.id, given.id} == {"certificate-not-trusted"}
    assert f"certificate of {server} is not signed" in str(without)
    assert f"(here {BUNDLE}) does not contain the authority that signed the certificate of {server}" in str(given)
