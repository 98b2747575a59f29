"""Known faults of an image's build: of pip, git, apt, compilers and BuildKit. A part of the list in known.py.

The most specific cause comes first. ``it`` in a sentence is what the groups of ``signs`` match.
"""

from __future__ import annotations

from .entry import ENGINE, HOST, KnownFault

_PROXIES = "gaudi_http_proxy and gaudi_https_proxy (serving_image_http_proxy and serving_image_https_proxy where set)"
_INDEXES = f"serving_image_python_indexes and the proxies, {_PROXIES}"
_PIP, _GIT, _APT = "pip 22 to 25", "git 2.34 to 2.47", "apt of Ubuntu 22.04 and 24.04, and of Debian 12"

FAULTS = (
    KnownFault(
        "build-engine-ended",
        ENGINE,
        "",
        "The Docker engine ended while it built.",
        "Read journalctl -u docker, which says why.",
        "the clients of Docker 20.10 and 26",
        retry=True,
        signs=r"failed to receive status: rpc error|code = Unavailable|^unexpected EOF$",
        example="error: failed to receive status: rpc error: code = Unavailable desc = error reading from server: EOF",
    ),
    KnownFault(
        "proxy-refuses",
        ENGINE,
        "",
        "The proxy refuses ({it}).",
        f"Correct {_PROXIES}.",
        f"{_PIP}, {_GIT}",
        signs=r"Tunnel connection failed: ([^'\")]+)|CONNECT tunnel failed, (response \d+)|(407 Proxy Auth[^'\")]*)",
        example="fatal: unable to access 'https://github.com/x/': CONNECT tunnel failed, response 403",
    ),
    KnownFault(
        "proxy-unreachable",
        ENGINE,
        "",
        "The proxy does not answer ({it}).",
        f"Correct {_PROXIES}.",
        f"{_PIP}, {_GIT}",
        retry=True,
        signs=r"(Could not resolve proxy)|(Cannot connect to proxy)",
        example="fatal: unable to access 'http://git:8092/x/': Could not resolve proxy: proxy",
    ),
    KnownFault(
        "certificate-not-trusted",
        ENGINE,
        "",
        "A program does not trust the certificate of a server ({it}).",
        "If an authority of the site signed it, or a proxy in between, name a file with the certificate of that "
        "authority in gaudi_ca_certificates.",
        f"{_PIP}, {_GIT} with OpenSSL and GnuTLS, {_APT}",
        remedies={"known": "{advice}"},
        signs=r"CERTIFICATE_VERIFY_FAILED\] ([^'\")]*)|SSL certificate problem: ([^'\"]*)"
        r"|(server certificate verification failed)|Certificate verification failed: ([^'\"]*?)\. ",
        example="fatal: unable to access 'https://git.example/x/': SSL certificate problem: unable to get local issuer "
        "certificate",
    ),
    KnownFault(
        "not-as-locked",
        ENGINE,
        "",
        "The Python index has another file than serving_image_lock says; the lines after it in the journal name it.",
        "Ask another index (serving_image_python_indexes), and trust a file of that name only when you know why it "
        "changed.",
        _PIP,
        signs=r"THESE PACKAGES DO NOT MATCH THE HASHES",
        example="ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
    ),
    KnownFault(
        "index-unreachable",
        ENGINE,
        "",
        "The Python index {it} does not answer.",
        f"Check {_INDEXES}.",
        _PIP,
        retry=True,
        signs=r"after connection broken by .*?HTTPS?Connection(?:Pool)?\(host='([^']+)'"
        r"|Could not fetch URL (\S+?):? |after connection broken by .* asked of (\S.*)",
        example="WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(\"HTTPConnection("
        "host='index', port=8091): Failed to establish a new connection\")': /simple/ray/",
    ),
    KnownFault(
        "no-wheel",
        ENGINE,
        "",
        "The Python index has no {it} for this Python and system.",
        "Name an index that has it in serving_image_python_indexes, or another version of it in "
        "serving_image_constraints.",
        _PIP,
        signs=r"No matching distribution found for (\S.*)",
        example="ERROR: No matching distribution found for triton==3.1.0",
    ),
    KnownFault(
        "requirements-conflict",
        ENGINE,
        "",
        "{it}, since the Python index has nothing that fits requirements and constraints alike.",
        "Change the constraint in serving_image_constraints, or name another index in serving_image_python_indexes.",
        _PIP,
        signs=r"ERROR: (Cannot install .*?) because these package versions have conflicting dependencies",
        example="ERROR: Cannot install a==1 and b because these package versions have conflicting dependencies.",
    ),
    KnownFault(
        "git-account-refused",
        ENGINE,
        "",
        "{it} lets nobody read without an account, or does not know the one that it was given.",
        "Name the account that may read there in serving_image_git_accounts (address, username, password or token), or "
        "a mirror that asks for none in serving_image_git_mirrors.",
        _GIT,
        signs=r"fatal: could not read (?:Username|Password) for '([^']+)'|fatal: Authentication failed for '([^']+)'",
        example="fatal: could not read Username for 'https://git.example.com': terminal prompts disabled",
    ),
    KnownFault(
        "git-host-unreachable",
        ENGINE,
        "",
        "Nothing could be fetched from {it}.",
        f"Check serving_image_git_mirrors and the proxies, {_PROXIES}, and serving_image_git_accounts for a host that "
        "asks who fetches.",
        _GIT,
        retry=True,
        signs=r"fatal: unable to access '([^']+)': (.*)|fatal: repository '([^']+)' not found"
        r"|fatal: unable to connect to (\S+)",
        example="fatal: unable to access 'https://github.com/a/b/': Could not resolve host: github.com",
    ),
    KnownFault(
        "package-source-not-signed",
        ENGINE,
        "",
        "{it} is signed by no key that the build trusts it by.",
        "Name its public key in serving_image_apt_key, after you made sure that it is the right one. Where the image "
        "has that key, name its keyring in the source's line of serving_image_apt_sources (signed-by).",
        _APT,
        signs=r"E: The repository '(\S+) [^']*' is not signed",
        example="E: The repository 'http://mirror:8096 bookworm Release' is not signed.",
    ),
    KnownFault(
        "package-file-gone",
        ENGINE,
        "",
        "The package source no longer has a file that the lists of this build name: {it}.",
        "Run apt-get update in the same step as the install, so that no cached step keeps old lists (docker build "
        "--no-cache); the steps of this project do. Then the source is a mirror that is not synchronised: name another "
        "one in serving_image_apt_sources.",
        _APT,
        retry=True,
        signs=r"(?:E|W): Failed to fetch (\S+\.deb) +404\b",
        example="E: Failed to fetch http://archive.ubuntu.com/pool/a_1_amd64.deb  404  Not Found [IP: 10.0.0.1 80]",
    ),
    KnownFault(
        "package-source-unreachable",
        ENGINE,
        "",
        "{it} could not be fetched.",
        f"Name a mirror in serving_image_apt_sources, and check the proxies, {_PROXIES}.",
        _APT,
        retry=True,
        signs=r"(?:E|W): Failed to fetch (\S+)|E: The repository '(\S+) [^']*' does not have a Release file",
        example="E: Failed to fetch http://archive.ubuntu.com/x.deb  Could not connect",
    ),
    KnownFault(
        "no-system-package",
        ENGINE,
        "",
        "The package sources of the image have no {it}.",
        "Check that they answer, or name others in serving_image_apt_sources.",
        _APT,
        signs=r"E: Unable to locate package (\S+)|E: Package '([^']+)' has no installation candidate",
        example="E: Unable to locate package numactl",
    ),
    KnownFault(
        "pytorch-replaced",
        ENGINE,
        "",
        "The PyTorch of the image is not Habana's any more ({it}); a package before this step brought it.",
        "Pin that package to a version that accepts the PyTorch of the base image (serving_image_constraints, "
        "serving_image_pins), or leave it out.",
        "the vendor's plugin for PyTorch, imported by what a step runs",
        signs=r"Current PyTorch version (\S+) is detected as neither HPU fork nor CPU upstream"
        r"|(Failed to load the backend extension: \S+)",
        example="RuntimeError: Failed to load the backend extension: habana_frameworks.",
    ),
    KnownFault(
        "package-not-built",
        ENGINE,
        "",
        "{it} could not be built; its compiler says why in the journal.",
        "Name a version that comes as a wheel in serving_image_constraints, or correct the commit it is built from "
        "(serving_image_pins).",
        _PIP,
        signs=r"Failed building (?:wheel|editable) for (\S+)|Failed to build '?([^'\s]+)'?"
        r"|did not run successfully for (\S+)",
        example="ERROR: Failed building wheel for pillow-simd",
    ),
    KnownFault(
        "compiler-killed",
        HOST,
        "",
        "The kernel killed the compiler ({it}): the host or the build's limit had too little memory.",
        "Free host memory (free -h, vm.nr_hugepages), or compile with fewer jobs at a time (MAX_JOBS).",
        "GCC",
        retry=True,
        signs=r"Killed signal terminated program (\w{1,40})",
        example="c++: fatal error: Killed signal terminated program cc1plus",
    ),
    KnownFault(
        "not-compiled",
        ENGINE,
        "",
        "A program could not be compiled ({it}); the lines before it in the journal say why.",
        "Correct the commit it is built from (serving_image_pins).",
        "GNU make",
        signs=r"make(?:\[\d+\])?: \*\*\* (.*)",
        example="make: *** [Makefile:12: all] Error 1",
    ),
)
