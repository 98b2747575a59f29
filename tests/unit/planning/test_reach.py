"""Who may ask a server: on the node whoever is there, from outside who has a key, unless a reason is written down."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.gaudi.catalogue.entries import ReleaseEntry
from ansible.module_utils.gaudi.pages.page import describe_plan
from ansible.module_utils.gaudi.planning.many import Catalogue, plan_all
from ansible.module_utils.gaudi.serving.plan import (
    AT_START,
    DOOR_DIRECTORY,
    GUARD_DIRECTORY,
    KEYS_DIRECTORY,
    MIDDLEWARE,
    PYTHON_PATH,
    Plan,
    container_command,
)

from plugin_utils import releases
from tests.golden.serving_cases import vendor

OUTSIDE = ["0.0.0.0", "::", "10.20.0.11", "node-1.example"]
INSIDE = ["127.0.0.1", "::1", "localhost", "127.0.0.53"]
WHY = "the site's gateway asks for keys"
# The ports of its own processes, by its lowest card.
CLOSED = {"closed_ports": [28000, 28015]}
ADDRESSES = [["lo", "127.0.0.1/8"], ["lo", "127.0.0.53/8"], ["lo", "::1/128"], ["eth0", "10.20.0.11/24"]]


def plan(release: str = "1.22", **request: Any) -> dict[str, Any]:
    """The plan, or the refusal, of one request, word for word."""
    node = {**vendor.topology("oam8"), "addresses": ADDRESSES}
    whole = {"instance": "chat", "model": "qwen3-8b", **request}
    answers: list[dict[str, Any]] = plan_all(
        [whole], vendor.catalogue(release, str(whole["model"])), node, weights_root="/data/models"
    )
    return answers[0]


@pytest.mark.parametrize("host", OUTSIDE)
def test_a_server_that_others_reach_without_keys_is_refused(host: str) -> None:
    refused = plan(host=host)
    assert refused["refused_id"] == "open_to_others"
    assert refused["refused"].startswith(
        f"chat: host is {host}, so that others reach the server, and it asks for no key."
    )


@pytest.mark.parametrize("host", OUTSIDE)
def test_with_keys_or_a_reason_others_may_reach_it(host: str) -> None:
    assert plan(host=host, guarded=True)["listen"] == {"host": host, "port": 30001, **CLOSED}
    opened = plan(host=host, open_without_keys=WHY)
    assert opened["listen"] == {"host": host, "port": 30001, "open_without_keys": WHY, **CLOSED}
    assert f"Whoever reaches {host}:30001 may ask without a key: {WHY}" in opened["warnings"]


@pytest.mark.parametrize("host", INSIDE)
def test_the_node_itself_needs_no_key(host: str) -> None:
    assert plan(host=host)["guarded"] is False
    assert plan(host=host)["listen"] == {"host": host, "port": 30001, **CLOSED}


def test_who_asks_for_no_address_is_reached_from_the_node_alone(subtests: pytest.Subtests) -> None:
    """Scripts of the vendor's for some releases listen on every address."""
    for release in releases.names():
        with subtests.test(release=release):
            found = vendor.plan_request(
                release, {"instance": "chat", "weights": "/data/models/x", "max_model_len": 4096}
            )
            assert found["listen"]["host"] == "127.0.0.1"
            assert "open_without_keys" not in found["listen"]


@pytest.mark.parametrize("request_", [{}, {"host": "::1"}, {"host": "0.0.0.0", "guarded": True}])
def test_a_reason_for_nothing_is_refused(request_: dict[str, Any]) -> None:
    """It would stand there when the server is opened later, and nobody would be asked."""
    assert plan(open_without_keys=WHY, **request_)["refused_id"] == "not_open"


@pytest.mark.parametrize(
    ("reason", "id_"), [("", "empty"), ("yes", "no_reason"), (True, "not_text"), ("x" * 201, "too_long")]
)
def test_a_reason_is_in_words(reason: object, id_: str) -> None:
    assert plan(host="0.0.0.0", open_without_keys=reason)["refused_id"] == id_


def test_an_account_is_in_no_argument() -> None:
    for arguments in (["--otlp-traces-endpoint", "http://bob:hunter2@traces.example"], ["--x=grpc://hunter2@a"]):
        refused = plan(extra_args=arguments)
        assert refused["refused_id"] == "account_in_argument"
        assert "hunter2" not in refused["refused"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model-loader-extra-config", '{"s3": {"s3_secret_access_key": "hunter2"}}'],
        ["--model-loader-extra-config.s3_secret_access_key", "hunter2"],
    ],
)
def test_a_key_that_names_a_secret_is_in_no_argument(arguments: list[str]) -> None:
    refused = plan(extra_args=arguments)
    assert refused["refused_id"] == "secret_in_arguments"
    assert "hunter2" not in refused["refused"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "http://bob:hunter2@proxy:3128"),
        ("https_proxy", "bob:hunter2@proxy:3128"),
        ("HF_ENDPOINT", "https://hunter2@mirror.example"),
    ],
)
def test_an_account_is_in_no_environment(name: str, value: str) -> None:
    refused = plan(extra_environment={name: value})
    assert refused["refused_id"] == "account_in_environment"
    assert "hunter2" not in refused["refused"]
    assert "refused" not in plan(extra_environment={name: "http://proxy:3128"})


def test_headers_with_a_secret_are_in_no_environment() -> None:
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer hunter2"}
    assert plan(extra_environment=headers)["refused_id"] == "secret_in_environment"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--ssl-keyfile", "/k"],
        ["--ssl-certfile=/c"],
        ["--ssl_ca_certs", "/c"],
        ["--ssl-cert-reqs", "2"],
        ["--ssl-keyfile-password", "hunter2"],
        ["--ssl_keyfile_password=hunter2"],
    ],
)
def test_tls_is_the_gateways(arguments: list[str]) -> None:
    refused = plan(extra_args=arguments)
    assert refused["refused_id"] == ("secret_in_arguments" if "password" in arguments[0] else "argument_fixed")
    assert "hunter2" not in refused["refused"]
    assert plan(extra_args=["--ssl-certfile", "/c"])["refused"].endswith(
        "put a gateway before it that ends TLS with your certificate (docs/keys.md shows one). Leave it out."
    )


def test_a_plan_holds_its_guard() -> None:
    guarded = plan(guarded="yes")
    assert guarded["guarded"] is True
    assert guarded["arguments"][-2:] == [*MIDDLEWARE]
    mounts = {mount["target"]: mount for mount in guarded["container"]["mounts"]}
    assert {target: mounts[target]["source"] for target in (GUARD_DIRECTORY, KEYS_DIRECTORY, DOOR_DIRECTORY)} == {
        GUARD_DIRECTORY: "/usr/local/lib/gaudi-serving/guard",
        KEYS_DIRECTORY: "/etc/gaudi-serving/instances/chat/guard",
        DOOR_DIRECTORY: "/var/lib/gaudi-serving/instances/chat/door",
    }
    assert all(mounts[target]["read_only"] for target in (GUARD_DIRECTORY, KEYS_DIRECTORY, DOOR_DIRECTORY))
    assert guarded["container"]["at_start"] == [*AT_START, PYTHON_PATH]
    unguarded = plan()
    assert unguarded["container"]["at_start"] == list(AT_START)
    assert not {GUARD_DIRECTORY, KEYS_DIRECTORY} & {mount["target"] for mount in unguarded["container"]["mounts"]}


def test_several_models_on_a_card_have_the_guard_as_well() -> None:
    request = {"instance": "chat", "model": "bge-m3", "share_card_with": ["bge-reranker-large"], "guarded": True}
    found = Catalogue.from_mappings(
        vendor.content("releases", "1.22"),
        {name: vendor.content("models", name) for name in ("bge-m3", "bge-reranker-large")},
        vendor.content("", "cards"),
    )
    (shared,) = plan_all([request], found, vendor.topology("oam8"), weights_root="/data/models")
    assert Plan.from_document(shared).guarded is True


@pytest.mark.parametrize("guarded", [False, True])
def test_what_is_run_is_the_plans_or_named_by_it(guarded: bool) -> None:
    """Nothing else is added at the start, where the plan itself says whether a hub is asked and what code runs."""
    document = plan(guarded=guarded, extra_environment={"HF_HUB_OFFLINE": "1"}, trust_remote_code=True)
    run = container_command(Plan.from_document(document), "d" * 64, [5, 3], "/env", "/root")
    without = {**document, "container": {**document["container"], "at_start": []}}
    if guarded:
        with pytest.raises(ValueError, match="its guard, or a mount of it, is missing"):
            Plan.from_document(without)
        return
    rest = container_command(Plan.from_document(without), "d" * 64, [5, 3], "/env", "/root")
    added = [word for word in run if word not in rest]
    assert added == [
        *("--label", "gaudi-serving.instance=chat", "--label", f"gaudi-serving.plan={'d' * 64}"),
        *("--log-driver", "local", "--log-opt", "max-size=20m", "--log-opt", "max-file=2"),
        *("--env", "HABANA_VISIBLE_DEVICES=3,5"),
    ]


def test_the_images_own_search_path_stays_behind_the_guards() -> None:
    run = container_command(Plan.from_document(plan(guarded=True)), "d" * 64, [0], "/env", "/root")
    assert f"PYTHONPATH={GUARD_DIRECTORY}:/root" in run
    run = container_command(Plan.from_document(plan(guarded=True)), "d" * 64, [0], "/env", None)
    assert f"PYTHONPATH={GUARD_DIRECTORY}" in run


OFFLINE_WORDS = ["--env", "HF_HUB_OFFLINE=1", "--env", "TRANSFORMERS_OFFLINE=1"]


def has_offline(document: dict[str, Any]) -> bool:
    """Whether the container of a plan is started without a hub."""
    run = container_command(Plan.from_document(document), "d" * 64, [0], "/env", None)
    return any(run[at : at + len(OFFLINE_WORDS)] == OFFLINE_WORDS for at in range(run.index("--entrypoint")))


def test_a_server_whose_plan_names_nothing_of_a_hub_is_started_without_one() -> None:
    """The plan itself does not have the variables, so that those on nodes stay as they are."""
    document = plan()
    assert has_offline(document)
    assert "OFFLINE" not in json.dumps(document)
    # Plans of release 0.1 have fewer keys.
    document["container"].pop("environment")
    assert has_offline(document)


@pytest.mark.parametrize(
    "words",
    [
        ["--tokenizer", "owner/name"],
        ["--lora-modules", "a=/data/a", "b=owner/name"],
        ["--speculative-config", '{"method": "eagle3", "model": "owner/name"}'],
        ["--hf-overrides", '{"text_model_id": "owner/name"}'],
    ],
)
def test_a_server_whose_plan_names_something_of_a_hub_may_fetch_it(words: list[str]) -> None:
    document = plan()
    assert not has_offline({**document, "arguments": [*document["arguments"], *words]})
    own = [word.replace("owner/name", "/data/models/Own") for word in words]
    assert has_offline({**document, "arguments": [*document["arguments"], *own]})


def test_a_server_that_may_run_no_code_of_its_weights_cannot_whatever_their_class_asks_for() -> None:
    def modules(document: dict[str, Any]) -> list[str]:
        run = container_command(Plan.from_document(document), "d" * 64, [0], "/env", None)
        return [word for word in run[: run.index("--entrypoint")] if word.startswith("HF_MODULES_CACHE=")]

    document = plan()
    assert modules(document) == ["HF_MODULES_CACHE=/dev/null/trust_remote_code_is_off"]
    # A value of the site is in the environment file, and --env overrides that file.
    assert modules(plan(extra_environment={"HF_MODULES_CACHE": "/run/gaudi-serving/home/modules"})) == modules(document)
    assert modules({**document, "arguments": [*document["arguments"], "--trust_remote_code"]}) == []
    assert "HF_MODULES_CACHE" not in json.dumps(document)


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
@pytest.mark.parametrize("value", ["0", "1"])
def test_a_variable_of_the_site_decides_whether_a_server_asks_a_hub(name: str, value: str) -> None:
    document = plan(extra_environment={name: value})
    assert document["environment"][name] == value
    assert not has_offline(document)


def test_the_page_of_a_plan_tells_what_a_server_fetches() -> None:
    def hubs(*arguments: str, **options: Any) -> str:
        document = plan(**options)
        page = describe_plan({**document, "arguments": [*document["arguments"], *arguments]})
        (line,) = [line for line in page.splitlines() if line.split()[:1] == ["hubs"]]
        return line

    assert "fetches nothing (HF_HUB_OFFLINE=1, TRANSFORMERS_OFFLINE=1" in hubs()
    # A plan of an earlier release may have an account.
    assert "fetches s3://bucket/x" in hubs("--tokenizer", "s3://me:secret@bucket/x")
    assert "as the environment says" in hubs(extra_environment={"HF_HUB_OFFLINE": "0"})


def test_what_nobody_adds_is_refused() -> None:
    document = plan()
    document["container"]["at_start"] = [*AT_START, "privileges"]
    with pytest.raises(ValueError, match="at_start names privileges"):
        Plan.from_document(document)


def test_every_release_says_where_its_server_answers(subtests: pytest.Subtests) -> None:
    for release in releases.names():
        with subtests.test(release=release):
            content = releases.read(release)
            paths = {path for listed in content["paths"].values() for path in listed}
            assert {
                "/health",
                "/metrics",
                "/v1/models",
                "/v1/chat/completions",
                "/v1/completions",
                "/openapi.json",
            } <= paths
            assert any(source.startswith("paths:") for source in content["sources"])
            assert ReleaseEntry.from_mapping(content).paths == tuple(sorted(paths))
