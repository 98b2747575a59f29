"""What goes into a support bundle: files that are named, and no secret in any of them."""

from __future__ import annotations

import fnmatch
import json

import pytest
from ansible.module_utils.gaudi.base import owned_paths, paths
from ansible.module_utils.gaudi.doctor.bundle import (
    CUT,
    FILES,
    LONGEST_LINE,
    MASKED,
    MOST_OF_BUNDLE,
    MOST_OF_FINDINGS,
    NOT_SHOWN,
    OF_PLAN,
    OF_STATE,
    masked_text,
)

from filter_plugins import doctor
from tests.golden import canonical_plans

HIDDEN = "SECRETsecret123"
# What a site may have put into extra_environment. The preflight refuses some of these names, not all that exist.
SITES_OWN = (
    "BASIC_AUTH", "CI_JOB_JWT", "DATABASE_URL", "DB_PASS", "GITHUB_PAT", "GPG_PASSPHRASE", "HF_TOKENS", "MY_PWD",
    "SESSION_COOKIE", "STORAGE_SAS", "XYZ",
)  # fmt: skip
SIGNED = f"https://s3.example/w.bin?X-Amz-Date=1&X-Amz-Signature={HIDDEN}"


def test_every_file_of_ours_in_it_is_one_that_is_known_and_none_holds_keys() -> None:
    ours = [file for file in FILES if file.startswith(paths.ROOTS)]
    ours += [f"{paths.INSTANCES}/x/{name}" for name in OF_PLAN]
    ours += [f"{paths.INSTANCE_STATES}/x/{name}" for name in OF_STATE]
    known = [owned.path for owned in owned_paths.TABLE]
    assert [file for file in ours if not any(fnmatch.fnmatch(file, path) for path in known)] == []
    names = {file.rpartition("/")[2] for file in ours}
    assert not names & {"environment", "keys.json", "probe", "config.json", "git", "pip", "apt"}
    assert not any(name.endswith(".token") for name in names)


@pytest.mark.parametrize(
    "document",
    [
        {"settings": {"HF_TOKEN": HIDDEN}},
        {"settings": [{"name": "HF_TOKEN", "value": HIDDEN}]},
        {"extra": {"api_key": HIDDEN, "AWS_SECRET_ACCESS_KEY": HIDDEN, "password": [HIDDEN]}},
        {"key": HIDDEN, "keys": [HIDDEN], "Authorization": f"Bearer {HIDDEN}"},
        {"https_proxy": f"http://me:{HIDDEN}@proxy.example:3128"},
        {"command": [f"--hf-token={HIDDEN}", f"MY_API_KEY={HIDDEN}"]},
        {"command": ["--hf-token", HIDDEN, "--x"]},
        {"command": [f'--x={{"auth": "{HIDDEN}"}}', "--x.auth", HIDDEN, "--x", ".pwd", HIDDEN, f"--x.pass={HIDDEN}"]},
        {"command": ["--db-password", f".{HIDDEN}", "--api-keys", HIDDEN, f".{HIDDEN}", HIDDEN]},
        {"apiKeys": [HIDDEN, f".{HIDDEN}"]},
        {"said": f"X-Auth-Token: Bearer {HIDDEN} token: Bearer {HIDDEN}"},
        {"said": f"api_key=Bearer {HIDDEN} HTTP_AUTH=Basic {HIDDEN}"},
        {"said": f"Namespace(api_key=('x1', '{HIDDEN}'), credentials={{'a': '{HIDDEN}'}})"},
        {"said": f'run ["--api-key","k1","{HIDDEN}","--port"]'},
        {"command": ["--header", f"X-Api-Key: Bearer {HIDDEN}"]},
        {"HTTPS_PROXY": f"me:{HIDDEN}@proxy.example:3128"},
        {"said": f"with --api-key {HIDDEN}"},
        {"said": f"HTTP_PROXY=me:{HIDDEN}@proxy:3128"},
        {"said": f'got {{"token": "{HIDDEN}"}}'},
        {"credentials": {"value": HIDDEN}},
        {"credentials": [{"user": "me", "value": [HIDDEN]}]},
        {"password": {"of": {"the": [HIDDEN]}}, "passwords": [[HIDDEN]]},
        {"command": ["--api-key", "first", HIDDEN, "--x"]},
        {"source": SIGNED},
        {"source": f"https://blob.example/w?sv=1&sig={HIDDEN}"},
        {"mirror": f"http://me:p@{HIDDEN}@pypi.example/simple"},
        {"mirror": f"http://me:p/{HIDDEN}@pypi.example/simple"},
        {"mirror": f"https://{HIDDEN}@git.example/x"},
        {"mirror": f"https://me:p:{HIDDEN}=@git.example/x"},
        {"proxy": f"me:p/{HIDDEN}@pypi.example"},
        {"said": f"pulled through me:{HIDDEN}@proxy.example:3128"},
        {"passphrase": HIDDEN, "db_pass": HIDDEN, "MY_PWD": HIDDEN, "cookie": HIDDEN, "basic_auth": HIDDEN},
        {"x_sas": HIDDEN, "github_pat": HIDDEN},
    ],
)
def test_a_secret_in_a_document_is_taken_out(document: object) -> None:
    text = masked_text(json.dumps(document))
    assert HIDDEN not in text
    assert MASKED in text


@pytest.mark.parametrize(
    "line",
    [
        f"HF_TOKEN={HIDDEN}",
        f"vllm serve x --api-key {HIDDEN}",
        f"https_proxy=me:{HIDDEN}@proxy.example:3128",
        f'HTTPS_PROXY="me:{HIDDEN}@proxy.example:3128"',
        f"password: {HIDDEN}",
        f"https://me:{HIDDEN}@hub.example/x",
        f"x api-key={HIDDEN} y",
        f"Authorization: Bearer {HIDDEN}",
        f"authorization: Digest username=me, response={HIDDEN}",
        f"Set-Cookie: id={HIDDEN}; Path=/",
        f'password = "two {HIDDEN} words"',
        f"password = 'two {HIDDEN} words'",
        f"GET {SIGNED} 200",
        f"git clone https://me:p@ss/{HIDDEN}@git.example/x",
        f"GPG_PASSPHRASE={HIDDEN}",
        f"{{'hf_token': '{HIDDEN}'}}",
        f"{{'Authorization': 'Bearer {HIDDEN}'}}",
        f"'password': '{HIDDEN}'",
        f"{{'Cookie': 'id={HIDDEN}'}}",
        f"{{'https_proxy': 'me:{HIDDEN}@proxy.example:3128'}}",
        f"sent Bearer {HIDDEN} to the hub",
        f"curl -H 'Bearer {HIDDEN}' x",
        f"invalid token hf_{HIDDEN * 3}",
        f"who is gaudi-{HIDDEN}-{HIDDEN}_{HIDDEN[:11]}?",
        f"'--hf-token', '{HIDDEN}', '--x'",
        f"gave ghp_{HIDDEN * 3} away",
        f"gave sk-{HIDDEN}-{HIDDEN} away",
        f"docker login with dckr_pat_{HIDDEN}-{HIDDEN}",
        f"xoxb-{HIDDEN}-{HIDDEN}, nvapi-{HIDDEN}-{HIDDEN}",
        f"curl -u carol:{HIDDEN} https://nexus.corp.zone/x",
        f"curl -ucarol:{HIDDEN} https://nexus.corp.zone/x",
        f"curl -sSfu carol:{HIDDEN} https://nexus.corp.zone/x",
        f"curl -u 'carol:two {HIDDEN}' https://nexus.corp.zone/x",
        f'curl --user "carol:two {HIDDEN}" https://nexus.corp.zone/x',
        f"sshpass -p {HIDDEN} ssh rack7",
        f"sent eyJhbGciOiJI.{HIDDEN}{HIDDEN}.x to it",
        f"ssh-ed25519 AAAAC3{HIDDEN} {HIDDEN}@{HIDDEN}",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{HIDDEN}\n{HIDDEN}\n-----END OPENSSH PRIVATE KEY-----",
        f"-----BEGIN RSA PRIVATE KEY-----\n{HIDDEN}",
        f'password="ab\\"cd{HIDDEN}"',
        f"password='ab\\'cd{HIDDEN}'",
        f"api_key => {HIDDEN}",
        f"api_key => '{HIDDEN}'",
        f"password := {HIDDEN}",
        f'said "{{\\"token\\": \\"{HIDDEN}\\"}}"',
        f'"auth-token":\n\n    "{HIDDEN}",',
        f"password:\n  {HIDDEN}",
        f"      --api-key\n      {HIDDEN}",
        f'"--hf-token",\n"{HIDDEN}",',
        f'"--api-key",\n"k1",\n"{HIDDEN}",\n"--port",',
        f"password:\n  --{HIDDEN}",
        f'--api-key "-k" "{HIDDEN}"',
        f"error: unrecognized arguments: --enable-foo --api-key first-key {HIDDEN}",
        f"vllm serve --api-key first-key {HIDDEN} --port 8000",
        f"['--api-key', 'first-key', '{HIDDEN}']",
        f"Namespace(api_key=['first-key', '{HIDDEN}'])",
        f"docker login -u carol -p{HIDDEN}",
        f"login carol\tpassword\t{HIDDEN}",
        f"DefaultEndpointsProtocol=https;AccountKey={HIDDEN}==",
        f"private_key = {HIDDEN}",
        f'{{"auths": {{"registry.example": {{"auth": "{HIDDEN}"}}}}}}',
        f"auth: {HIDDEN}",
        f"pass={HIDDEN}",
        f"redis_key={HIDDEN}",
        f"docker login -u carol -p {HIDDEN}",
        f"machine nexus.corp.zone login carol password {HIDDEN}",
    ],
)
def test_a_secret_in_a_line_is_taken_out(line: str) -> None:
    assert HIDDEN not in masked_text(f"one\n{line}\nthree\n")


@pytest.mark.parametrize("key", ["auth", "key", "pass", "encryption-key"])
def test_a_secret_in_a_document_within_a_word_is_taken_out(key: str) -> None:
    word = json.dumps({"kv_connector_extra_config": {key: HIDDEN, "size": 4}})
    text = masked_text(json.dumps({"arguments": ["--kv-transfer-config", word]}))
    assert HIDDEN not in text
    assert "size" in text


@pytest.mark.parametrize("levels", [400, 900, 200_000])
def test_text_of_any_depth_is_masked(levels: int) -> None:
    for text in ("[" * levels, f'{"[" * levels}{{"token": "{HIDDEN}"}}{"]" * levels}'):
        assert HIDDEN not in masked_text(text)


@pytest.mark.parametrize(
    "word", ["\\", '"\\', "token=\\", "token", "token-", "://", "proxy=", "--api-key", "a:b@", "'", "authorization"]
)
@pytest.mark.parametrize("of", ["line", "value"])
def test_text_of_any_length_is_masked(word: str, of: str) -> None:
    """A search whose time grows with the square of the length would not end while anybody waits."""
    long = f"x {word * 200_000} end"
    shown = masked_text(json.dumps({"a": long}) if of == "value" else long)
    assert len(shown) < 2 * LONGEST_LINE
    assert CUT in shown


@pytest.mark.parametrize("secret", [f"https://me:{HIDDEN}", f"HF_TOKEN={HIDDEN}", f"gaudi-{HIDDEN}-{HIDDEN}"])
def test_a_line_that_is_cut_ends_with_no_part_of_a_secret(secret: str) -> None:
    line = f"{'x ' * ((LONGEST_LINE - len(secret)) // 2 - 1)}{secret}"
    assert HIDDEN not in masked_text(f"{line}-rest@host " + "y" * LONGEST_LINE)


def test_a_bundle_of_a_hostile_node_is_printable_and_has_an_end() -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07a\r<0>b\u2028c\u202ed\x9b31me"
    finding = {"id": "x", "seen_in": "cards", "sentence": f"{hostile} token={HIDDEN}", "fault": True}
    text = doctor.doctor_bundle([finding], "node-1", f"==== {hostile}\nsecond line\n")
    assert all(line.isprintable() for line in text.split("\n"))
    assert "\nsecond line\n" in text
    assert HIDDEN not in text
    most = doctor.doctor_bundle([finding] * 50_000, "node-1", "word " * (20 << 18))
    assert len(most) < MOST_OF_FINDINGS + MOST_OF_BUNDLE + 100


@pytest.mark.parametrize("name", SITES_OWN)
@pytest.mark.parametrize("form", ["mapping", "named", "words", "container", "explained", "record"])
def test_a_variable_that_only_the_site_knows_is_named_without_its_value(name: str, form: str) -> None:
    documents: dict[str, object] = {
        "mapping": {"environment": {name: HIDDEN}},
        "named": {"extra_environment": [{"name": name, "value": HIDDEN}]},
        "words": {"env": [f"{name}={HIDDEN}"]},
        "container": {"container": {"environment": {name: HIDDEN}}},
        "explained": {"explain": [{"value": f"environment.{name}", "result": HIDDEN, "inputs": {"value": HIDDEN}}]},
        "record": {"requests": [{"extra_environment": {name: {"a": [HIDDEN]}}}]},
    }
    text = masked_text(json.dumps(documents[form]))
    assert HIDDEN not in text
    assert name in text
    assert NOT_SHOWN in text


def test_what_a_release_knows_stays_in_an_environment() -> None:
    """A plan is refused if its release does not know a variable with such a prefix."""
    document = {
        "environment": {"VLLM_PORT": "28000", "PT_HPU_LAZY_MODE": "1", "HABANA_VISIBLE_MODULES": "0,1", "HOME": "/x"},
        "explain": [{"value": "environment.VLLM_PORT", "result": "28000", "inputs": {"value": 28000}}],
    }
    assert json.loads(masked_text(json.dumps(document))) == document
    assert HIDDEN not in masked_text(json.dumps({"environment": {"VLLM_API_KEY": HIDDEN}}))


def test_every_variable_that_a_plan_sets_itself_is_known() -> None:
    plans = canonical_plans.plans("qwen3-8b")
    documents = [{key: plan[key] for key in ("environment", "container")} for _, plan in plans if "environment" in plan]
    assert len(documents) > 10
    for document in documents:
        assert NOT_SHOWN not in masked_text(json.dumps(document))


@pytest.mark.parametrize(
    "argument",
    [
        f"rd.luks.key={HIDDEN}",
        f"netroot=iscsi:me:{HIDDEN}@disk.example::::x",
        f'init="/bin/sh {HIDDEN}"',
        f'"any thing={HIDDEN}"',
        f"iommu={HIDDEN}=pt",
        f"-- {HIDDEN}",
    ],
)
def test_of_the_kernels_arguments_the_values_of_known_ones_are_shown(argument: str) -> None:
    line = f"BOOT_IMAGE=/boot/vmlinuz-6.8 ro intel_iommu=on iommu=pt hugepages=64 {argument}\n"
    text = masked_text(line, "/proc/cmdline")
    assert text.startswith("BOOT_IMAGE=/boot/vmlinuz-6.8 ro intel_iommu=on iommu=pt hugepages=64")
    assert HIDDEN not in text


def test_what_is_no_secret_stays() -> None:
    document = {
        "max_num_batched_tokens": 2048,
        "environment": {"VLLM_MAX_TOKENS": "2048"},
        "flags": ["--max-num-batched-tokens=2048"],
        "keyboard": "de",
        "plan": "abc",
        "cards": [{"module_id": 0, "serial": "AM01"}],
        "command": ["--max-model-len", "4096"],
        "address": "http://127.0.0.1:8000/v1",
        "nothing": None,
        "http_proxy": "http://proxy.example:3128",
        "words": ["--max-num-batched-tokens", "4096", "--trust-remote-code"],
        "image": "vault.habana.ai/gaudi-docker/vllm:1.24.1-482@sha256:0123456789abcdef",
        "unit": "gaudi-job@fetch.qwen3-8b.service",
        "passed": True,
        "compatible": "yes",
        "said": "hf_hub_download of gaudi-serving-simulated-gaudi-1",
        "ran": "docker run --user 1000:1000 -u 0:0; npm_config_registry, sk_stream_wait_memory",
    }
    assert json.loads(masked_text(json.dumps(document))) == document
    assert masked_text("MemTotal: 1 kB\n") == "MemTotal: 1 kB\n"


def test_what_would_rule_a_terminal_does_not_pass() -> None:
    assert "\x1b" not in masked_text("a\x1b[2Jb\n")


def test_the_findings_in_front_of_it_are_masked_too() -> None:
    finding = {"id": "an_id", "seen_in": "host", "sentence": f"It ended: HF_TOKEN={HIDDEN}", "fault": True}
    text = doctor.doctor_bundle([finding], "n1", "==== uname\nLinux\n")
    assert HIDDEN not in text
    assert text.endswith("\n==== uname\nLinux\n")
    assert "It ended" in text
