"""Steps of a build as the shell runs them: a checkout of one commit, and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.image.addresses import APT_KEY, apt_sources, git_config
from ansible.module_utils.gaudi.image.output import failure
from cryptography.hazmat.primitives.asymmetric import rsa

from simulator import packages
from simulator.hub import git as git_host
from simulator.hub.server import running
from tests.unit.node.outside import CertificateAuthority, proxy, serving

STEPS = Path(__file__).resolve().parents[3] / "roles/serving_image/files/gaudi_image/context/steps.sh"


class QuietFiles(SimpleHTTPRequestHandler):
    """Files of a directory, as git's simple protocol reads them."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


def git(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(folder), "-c", "user.name=Maker", "-c", "user.email=maker@example.com", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def step(
    folder: Path, *arguments: str, system: str = "system", account: str = os.devnull
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GIT_CONFIG_SYSTEM": str(folder / system), "GIT_CONFIG_GLOBAL": account}
    return subprocess.run(["sh", str(STEPS), *arguments], check=False, capture_output=True, text=True, env=environment)


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    for number in (1, 2):
        (folder / "file").write_text(f"{number}\n")
        git(folder, "add", "file")
        git(folder, "commit", "--quiet", "--message", str(number))
    return folder


def test_a_checkout_is_of_the_commit_and_of_no_other(origin: Path, tmp_path: Path) -> None:
    first = git(origin, "rev-parse", "HEAD~1")
    done = step(tmp_path, "checkout", f"file://{origin}", first, str(tmp_path / "made"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made" / "file").read_text() == "1\n"
    assert git(tmp_path / "made", "rev-parse", "HEAD") == first


def test_nothing_in_a_build_writes_core_dumps(tmp_path: Path) -> None:
    git_ = tmp_path / "git"
    git_.write_text(f"#!/bin/sh\nulimit -H -c > {tmp_path}/limit\nexit 1\n")
    git_.chmod(0o755)
    environment = {**os.environ, "GAUDI_BUILD_PATH": str(tmp_path)}
    command = ["sh", str(STEPS), "checkout", "https://host/x", "0" * 40, str(tmp_path / "made")]
    assert subprocess.run(command, check=False, capture_output=True, env=environment).returncode != 0
    assert (tmp_path / "limit").read_text() == "0\n"


def test_a_host_that_gives_no_single_commits_gives_all(origin: Path, tmp_path: Path) -> None:
    git(origin, "config", "uploadpack.allowAnySHA1InWant", "false")
    git(origin, "config", "protocol.version", "0")
    first = git(origin, "rev-parse", "HEAD~1")
    done = step(tmp_path, "checkout", str(origin), first, str(tmp_path / "made"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made" / "file").read_text() == "1\n"


def test_a_commit_that_is_not_there_is_said(origin: Path, tmp_path: Path) -> None:
    done = step(tmp_path, "checkout", f"file://{origin}", "0" * 40, str(tmp_path / "made"))
    assert done.returncode == 1
    assert f"gaudi-image refused commit_not_in_repository: file://{origin} has no commit {'0' * 40}." in done.stderr
    assert "serving_image_pins" in done.stderr


def test_a_commit_that_a_mirror_lacks_is_said_of_the_mirror(origin: Path, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(git_config({"https://github.com/": f"file://{tmp_path}/"}, []))
    address = "https://github.com/origin"
    done = step(tmp_path, "checkout", address, "0" * 40, str(tmp_path / "made"), account=str(config))
    assert done.returncode == 1
    assert f"commit_not_in_repository: file://{origin} (for {address}) has no commit {'0' * 40}." in done.stderr


def test_a_checkout_that_fails_for_another_reason_says_it(origin: Path, tmp_path: Path) -> None:
    """A full disk is no commit that is missing."""
    place, commit = tmp_path / "made", git(origin, "rev-parse", "HEAD")
    git(tmp_path, "init", "--quiet", str(place))
    # A checkout that was cut off leaves a tree, and git does not write over one.
    (place / ".git" / "index.lock").touch()
    done = step(tmp_path, "checkout", f"file://{origin}", commit, str(place))
    assert done.returncode not in (0, 1)
    assert "index.lock" in done.stderr
    assert "refused" not in done.stderr


def test_a_host_that_is_not_there_is_gits_to_say(tmp_path: Path) -> None:
    done = step(tmp_path, "checkout", f"file://{tmp_path}/nothing", "0" * 40, str(tmp_path / "made"))
    assert done.returncode == 1
    assert "fatal: " in done.stderr
    assert "refused" not in done.stderr


def test_a_private_repository_is_opened_by_the_account_alone(tmp_path: Path) -> None:
    """As the host has it that simulated nodes build from, and with the configuration that a build gets as a secret."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "file").write_text("1\n")
    host = type("Host", (git_host.GitHost,), {"root": tmp_path / "bare"})
    with running(front=host) as hub:
        hub.tokens.add("right")
        made = git_host.publish(hub, "me/fork", tmp_path / "files", tmp_path / "bare", private=True)
        said = []
        for number, password in enumerate(("", "wrong", "right")):
            account = {"address": hub.endpoint, "username": "reader", "password": password}
            config = tmp_path / f"config-{number}"
            config.write_text(git_config({}, [account] if password else []))
            done = step(
                *(tmp_path, "checkout", f"{hub.endpoint}/me/fork", made.main, str(tmp_path / f"made-{number}")),
                account=str(config),
            )
            said.append((done.returncode, failure("fork", done.stderr.splitlines()) if done.returncode else None))
        assert [status for status, _ in said] == [1, 1, 0], said
        for _, refusal in said[:2]:
            assert refusal is not None
            assert (refusal.id, hub.endpoint in str(refusal)) == ("git-account-refused", True)
            assert "serving_image_git_accounts" in str(refusal)


PYTHON = """#!/bin/sh
case "$*" in
  *"pip list"*) printf '%s' "$LISTED"; exit "$LIST_STATUS" ;;
  *"pip install"*) cat /tmp/held.txt; echo "installed" ;;
esac
"""


def install(folder: Path, listed: str, status: int = 0, python: str = PYTHON) -> subprocess.CompletedProcess[str]:
    """Run the step that installs, with a pip that lists what it is told to."""
    programs = folder / "bin"
    programs.mkdir()
    # A build has its /tmp for itself; two tests that run at once have not.
    (folder / "tmp").mkdir()
    steps = folder / "steps.sh"
    for file, text in ((programs / "python3", python), (steps, STEPS.read_text())):
        file.write_text(text.replace(" /tmp/", f" {folder / 'tmp'}/"))
    (programs / "python3").chmod(0o755)
    search = f"{programs}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": search, "LISTED": listed, "LIST_STATUS": str(status)}
    command = ["sh", str(steps), "packages", "ray"]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize(
    ("listed", "held"),
    [("numpy==1\ntorch==2.7.1\nhabana-pyhlml==1\n", "torch==2.7.1\nhabana-pyhlml==1\n"), ("numpy==1\n", "")],
)
def test_what_the_vendor_installed_is_held(tmp_path: Path, listed: str, held: str) -> None:
    done = install(tmp_path, listed)
    assert (done.returncode, done.stdout) == (0, f"{held}installed\n"), done.stderr


SETUP = """#!/bin/sh
case "$*" in *"pip install --log"*) hl-smi && echo "built for Gaudi" || echo "built for nothing" ;; esac
"""


@pytest.mark.parametrize(("sees_cards", "built"), [(True, "for Gaudi"), (False, "for nothing")])
def test_a_setup_that_looks_for_a_card_finds_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sees_cards: bool, built: str
) -> None:
    """004: pip install -e . of v0.4.2-Gaudi-1.16.0, whose setup.py asks hl-smi; a build has no card."""
    cards = tmp_path / "cards"
    cards.mkdir()
    # Modes are given when the context is written.
    (cards / "hl-smi").write_bytes((STEPS.parent / "cards" / "hl-smi").read_bytes())
    (cards / "hl-smi").chmod(0o755)
    monkeypatch.setenv("GAUDI_BUILD_PATH", str(cards) if sees_cards else "")
    done = install(tmp_path, "", python=SETUP)
    assert done.stdout == f"built {built}\n", done.stderr


def test_a_pip_that_does_not_list_is_no_pip_that_lists_nothing(tmp_path: Path) -> None:
    done = install(tmp_path, "", status=3)
    assert done.returncode == 3
    assert "installed" not in done.stdout


# What pip 23.0.1 prints and logs, shortened.
CONFLICT = """ERROR: Cannot install common>=1 because these package versions have conflicting dependencies.

The conflict is caused by:
    The user requested common>=1
    The user requested (constraint) common<20
"""
REFUSING = f"""#!/bin/sh
log=/dev/null
for argument; do
  if [ "$log" = next ]; then log=$argument; fi
  if [ "$argument" = --log ]; then log=next; fi
done
case "$*" in
  *"pip install --help"*) ;;
  *"pip install"*) cat > "$log" <<'END'
{CONFLICT}END
    exit 1 ;;
  *"pip index versions --pre --retries 1 "*)
    shift 7
    echo "$LISTED" >&2
    echo "asked for $*" >&2
    exit "$LIST_STATUS" ;;
esac
"""


@pytest.mark.parametrize(("said", "status"), [("ERROR: No matching distribution found for common", 1), ("", 0)])
def test_what_a_constraint_conflicts_with_is_asked_for_without_it(tmp_path: Path, said: str, status: int) -> None:
    done = install(tmp_path, said, status, REFUSING)
    assert done.returncode == 1
    assert done.stderr == f"{said}\nasked for common\n"


def test_a_checkout_that_nobody_may_ask_for_its_commit_ends_the_step(origin: Path, tmp_path: Path) -> None:
    commit = git(origin, "rev-parse", "HEAD")
    done = step(tmp_path, "checkout", f"file://{origin}", commit, str(tmp_path / "made"), system="no folder/system")
    assert done.returncode not in (0, 1)
    assert "no folder/system" in done.stderr


# apt itself reads the sources and judges their signatures. What it would do to the system is left out.
APT_GET = """#!/bin/sh
case "$*" in *" install "*) echo "asked for $*" ;; *) exec /usr/bin/apt-get "$@" ;; esac
"""
OURS, ANOTHER = (packages.Signer(rsa.generate_private_key(65537, 2048), "nobody <nobody@localhost>") for _ in range(2))
THING = packages.SimulatedPackage("gaudi-serving-thing", "1.0-1", "About it")
ONE_LINE, DEB822 = "deb {at} bookworm main\n", "Types: deb\nURIs: {at}\nSuites: bookworm\nComponents: main\n"


class ImageFolder:
    """A folder that has apt's files as an image has them, and the secrets of a step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("etc/apt/sources.list.d", "etc/apt/trusted.gpg.d", "var/lib/apt/lists/partial", "secrets", "bin"):
            (folder / name).mkdir(parents=True)
        self.write("var/lib/dpkg/status", "")
        # apt reads keys and sources as a user who may not read a folder of a test.
        options = {"Dir": folder, "Dir::State::status": folder / "var/lib/dpkg/status", "APT::Sandbox::User": "root"}
        said = {**options, "APT::Architecture": "amd64", "Dir::Log": folder}
        self.write("apt.conf", "".join(f'{name} "{value}";\n' for name, value in said.items()))
        (self.write("bin/apt-get", APT_GET)).chmod(0o755)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def source(self, name: str, signer: packages.Signer) -> str:
        """The address of a source whose packages this key signs."""
        for path, file in packages.repository([THING], "bookworm", signer).items():
            place = self.folder / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.content)
        return f"file:{self.folder / name}"

    def fetch(self) -> subprocess.CompletedProcess[str]:
        """Run the step that installs packages of the system."""
        text = STEPS.read_text()
        for path in ("/run/secrets", "/var/lib/apt", "/etc/apt"):
            text = text.replace(path, f"{self.folder}{path.replace('/run/secrets', '/secrets')}")
        # Nothing of this machine is removed.
        assert " /var/" not in text
        steps = self.write("steps.sh", text)
        search = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": search, "APT_CONFIG": str(self.folder / "apt.conf"), "LC_ALL": "C"}
        command = ["sh", str(steps), "system", THING.name]
        return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)

    def given(self, sources: str) -> None:
        """Have the step given sources, and the key that is OURS for them."""
        said = apt_sources(sources, OURS.public).replace(APT_KEY, f"{self.folder}{APT_KEY}")
        self.write("secrets/apt", said)
        self.write("secrets/apt_key", OURS.public)


@pytest.fixture
def image(tmp_path: Path) -> ImageFolder:
    return ImageFolder(tmp_path)


def is_refused(done: subprocess.CompletedProcess[str], at: str) -> bool:
    refusal = failure("packages", (done.stdout + done.stderr).splitlines()) if done.returncode else None
    return refusal is not None and refusal.id == "package-source-not-signed" and at in str(refusal)


def test_the_sources_of_the_site_are_trusted_by_its_key(image: ImageFolder) -> None:
    image.given(f"# Ours\ndeb [arch=amd64] {image.source('mirror', OURS)} bookworm main # by the site's key\n")
    done = image.fetch()
    assert done.returncode == 0, done.stderr
    assert f"--no-install-recommends {THING.name}\n" in done.stdout
    assert not Path(f"{image.folder}{APT_KEY}").exists()


@pytest.mark.parametrize(
    ("file", "form"), [("own.list", ONE_LINE), ("own.sources", DEB822)], ids=["one line", "deb822"]
)
def test_the_sources_of_the_image_are_trusted_by_the_keys_of_the_image_alone(
    image: ImageFolder, file: str, form: str
) -> None:
    at = image.source("own", OURS)
    image.write(f"etc/apt/sources.list.d/{file}", form.format(at=at))
    image.write("secrets/apt_key", OURS.public)
    assert is_refused(image.fetch(), at)
    image.write("etc/apt/trusted.gpg.d/image.asc", OURS.public)
    assert image.fetch().returncode == 0


def test_the_sources_of_the_image_are_not_asked_beside_those_of_the_site(image: ImageFolder) -> None:
    image.write("etc/apt/sources.list.d/own.sources", DEB822.format(at=image.source("own", ANOTHER)))
    image.given(ONE_LINE.format(at=image.source("mirror", OURS)))
    assert image.fetch().returncode == 0


def test_a_source_of_the_site_is_trusted_by_its_key_and_by_no_other(image: ImageFolder) -> None:
    image.write("etc/apt/trusted.gpg.d/image.asc", ANOTHER.public)
    at = image.source("mirror", ANOTHER)
    image.given(ONE_LINE.format(at=at))
    assert is_refused(image.fetch(), at)


def test_a_source_of_the_site_that_names_a_keyring_is_trusted_by_that_alone(image: ImageFolder) -> None:
    keyring = image.write("usr/share/keyrings/image.asc", ANOTHER.public)
    for name, signer, status in (("right", ANOTHER, 0), ("wrong", OURS, 100)):
        at = image.source(name, signer)
        image.given(f"deb [signed-by={keyring}] {at} bookworm main\n")
        done = image.fetch()
        assert (done.returncode, is_refused(done, at)) == (status, bool(status)), done.stderr


def test_git_trusts_the_sites_authority_and_tells_the_proxy_its_account(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a build has them: predefined arguments, and a secret that each step sees."""
    git(origin, "update-server-info")
    head, authority = git(origin, "rev-parse", "HEAD"), CertificateAuthority()
    steps = tmp_path / "steps.sh"
    steps.write_text(STEPS.read_text().replace("secrets=/run/secrets", f"secrets={tmp_path}"))
    handler = partial(QuietFiles, directory=str(origin))
    with serving(handler, authority.server(tmp_path)) as port, proxy() as (address, site):  # type: ignore[arg-type]
        monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(tmp_path / "system"))
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        for variable in ("https_proxy", "no_proxy", "NO_PROXY", "GIT_SSL_CAINFO", "GIT_SSL_NO_VERIFY"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("HTTPS_PROXY", address)
        words = ["sh", str(steps), "checkout", f"https://127.0.0.1:{port}/.git", head]
        done = subprocess.run([*words, str(tmp_path / "one")], check=False, capture_output=True, text=True)
        assert done.returncode != 0
        assert "certificate" in done.stderr
        (tmp_path / "ca").write_text(authority.pem)
        done = subprocess.run([*words, str(tmp_path / "two")], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "two/file").read_text() == "2\n"
        assert set(site.accounts) <= {"", "reader:p@ss%:/#$ x"}
        assert "p%40ss" not in done.stdout + done.stderr


@pytest.mark.parametrize("given", ["proxy.example:3128", "http://u:p%40$x@proxy.example:3128", "socks5h://p:1", ""])
def test_a_proxy_without_a_scheme_gets_one(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """apt takes 127.0.0.1:3128 for an address of the scheme 127.0.0.1."""
    (tmp_path / "Makefile").write_text('all:\n\t@echo "$$https_proxy"\n')
    monkeypatch.setenv("https_proxy", given)
    whole = given if "://" in given or not given else f"http://{given}"
    monkeypatch.setenv("MAKEFLAGS", "--no-print-directory")
    assert step(tmp_path, "make", str(tmp_path)).stdout == f"{whole}\n"
