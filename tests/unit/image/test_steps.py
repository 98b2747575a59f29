"""Steps of a build as the shell runs them: a checkout of one commit, and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.image.addresses import git_config
from ansible.module_utils.gaudi.image.output import failure

from simulator.hub import git as git_host
from simulator.hub.server import running

STEPS = Path(__file__).resolve().parents[3] / "roles/serving_image/files/gaudi_image/context/steps.sh"


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
            assert (refusal.id, hub.endpoint in str(refusal)) == ("git_account_refused", True)
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
