"""How open plans are, compared: a partial order in which everything of a plan that opens an instance counts."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible.module_utils.gaudi.serving import known_settings, openness
from ansible.module_utils.gaudi.serving.openness import Openness, beyond, of_plan, opened
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import canonical_plans
from tests.golden.serving_cases import vendor
from tests.unit.planning.test_reach import plan as planned
from tests.unit.planning.test_releases import RELEASES

LOCAL = ["127.0.0.1", "::1", "localhost", "127.0.0.53"]
REMOTE = ["0.0.0.0", "::", "10.20.0.11", "10.20.0.12", "fe80::1", "node-1.example", "NODE-1.example", "0", "127.1"]
# Each part of a plan that may open it, with its values.
HOSTS = st.sampled_from([*LOCAL, *REMOTE])
LISTEN = st.fixed_dictionaries(
    {"host": HOSTS, "port": st.sampled_from([30001, 30002])},
    optional={"closed_ports": st.just([28000, 28015]), "open_without_keys": st.just("a gateway asks")},
)
ENVIRONMENT = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.sampled_from(["", "0", "False", "1", "/traces"]) for name in openness.MORE_PATHS},
        **{name: st.sampled_from(["lo", "127.0.0.1", "eth0", "10.20.0.11"]) for name in openness.BETWEEN_PROCESSES},
        **{name: st.sampled_from(["0", "1"]) for name in ("VLLM_MEDIA_URL_ALLOW_REDIRECTS", "HTTP_PROXY")},
    },
)
ARGUMENTS = st.lists(
    st.sampled_from(
        [
            *("--seed", "--enable_tokenizer_info_endpoint", "--profiler-config={}", "--profiler-config.x"),
            *("--trust-remote-code", "--allowed-local-media-path=/", "--allowed-local-media-path=/a"),
            *("--allowed-media-domains=a.example", "--allowed_media_domains=b.example", "--kv-events-config={}"),
            *("--grpc", "--no-such-option", "--middleware=evil.Open", "--model=owner/name", "--model=/data/models/x"),
        ]
    ),
    unique=True,
)
PLANS = st.fixed_dictionaries(
    {},
    optional={
        "guarded": st.sampled_from([True, False, None]),
        "listen": LISTEN,
        "environment": ENVIRONMENT,
        "container": st.fixed_dictionaries(
            {},
            optional={
                "environment": ENVIRONMENT,
                "ipc": st.sampled_from(["private", "host"]),
                "capabilities": st.lists(st.sampled_from(["SYS_NICE", "IPC_LOCK"])),
                "read_only": st.booleans(),
            },
        ),
        "arguments": ARGUMENTS,
    },
)
# Each argument with which a server runs or reads more than it is given, as a plan may have it.
TRUSTED = [
    ["--trust-remote-code"],
    ["--trust_remote_code"],
    ["--allowed-local-media-path", "/"],
    ["--allowed-local-media-path=/"],
    ["--enable-prompt-embeds"],
    ["--enable-mm-embeds"],
    ["--trust-request-chat-template"],
]
# Arguments that add something whatever they say.
ADDED = [
    ["--kv-events-config", '{"publisher": "zmq"}'],
    ["--kv-transfer-config.kv_role", "kv_both"],
    ["--logits-processor-pattern=.*"],
    ["--logits_processors", "evil.Processor"],
    ["--tool-server", "10.20.0.99:9000"],
    ["--ec-transfer-config", "{}"],
    ["--otlp-traces-endpoint", "http://10.20.0.99"],
    ["--enable-sleep-mode"],
    ["--tokens-only"],
    ["--model", "owner/name"],
    ["--tokenizer=owner/name"],
    ["-sc", '{"model": "owner/draft"}'],
    ["-sc.model", "owner/draft"],
]
TRUSTED_PATH = ["--allowed-local-media-path", "/a"]
DOMAINS_TWICE = ["--allowed-media-domains=a.example", "--allowed-media-domains=b.example"]
UNKNOWN = [
    *(["--middleware", "evil.Open"], ["--middleware=gaudi_guard.ApiKeyGuard", "--middleware", "evil.Open"]),
    *(["--allowed-origins", '["http://a.example"]'], ["--root-path=/x"], ["--grpc"], ["--uds", "/run/s"]),
    *(["--trust-rem"], ["--no-such-option"], ["--of-a-later-release", "1"], ["--hf-overrides", '{"auto_map": {}}']),
    *(
        ["--distributed-executor-backend", "ray"],
        ["--load-format=runai_streamer"],
        ["sh", "-c", "nc"],
        ["--additional-config={}"],
    ),
    *(["--hf-overrides", r'{"auto\u005fmap": {}}'], ["--hf-overrides", '{"text_model_id": "evil/llm"}']),
    *(["--hf-overrides", '{"text_config": {"auto_map": 1}}'], ["--hf-overrides=[]"], ["--hf-overrides", "{"]),
    *(["--hf-overrides.audio_model_id", "evil/llm"], ["--hf-overrides", '{"of_a_later_release": 1}']),
    *(["--limit-mm-per-prompt", "image=1"], ["--language-model-only"], ["--mm-encoder-only"]),
    *(["python3", "-m", "evil"], ["vllm", "serve", "owner/name"], ["-dpa", "10.20.0.99"], [*DOMAINS_TWICE]),
    *(["--limit-mm-per-prompt", '{"image": 5}'], ["--language-model-only"], ["--mm_encoder_only"]),
    *(["--compilation-config", '{"backend": "evil.Backend"}'], ["-cc.backend=evil.Backend"], ["-O.backend", "evil.B"]),
    *(["--seed", "1", '-O{"backend": "evil.Backend"}'], ["--seed", "1", "-n2"]),
]
UNKNOWN_VARIABLES = ["HTTP_PROXY", "LD_LIBRARY_PATH", "VLLM_PLUGINS", "RAY_ADDRESS", "VLLM_OF_A_LATER_RELEASE", "SEED"]
# What a failing change may set without leaving the instance stopped.
HARMLESS = [
    *(["--seed", "1"], ["--chat-template", "/data/templates/x.jinja"], ["--max-model-len=4096"], ["-tp", "8"]),
    *(["--distributed_executor_backend", "mp"], ["--no-enable-prefix-caching"], ["-O3"]),
    *(
        ["--middleware", "gaudi_guard.ApiKeyGuard"],
        ["--hf-overrides", '{"rope_scaling": {"factor": 4.0}}'],
        ["--model", "/data/x"],
    ),
    *(["python3", "-m", "vllm.entrypoints.openai.api_server"], ["vllm", "serve", "/data/models/x", "--dtype", "fp8"]),
    *(["--compilation-config", "3"], ["-O", "2"], ["-O=1"], ["-cc=0"], ["-sc", '{"model": "/data/x"}'], ["-q", "fp8"]),
    *(["--speculative-config", '{"model": "/data/x"}'], ["--lora-modules", "a=/data/a"], ["--load-format", "auto"]),
]
HARMLESS_ENVIRONMENT = {
    **{"VLLM_SKIP_WARMUP": "true", "VLLM_PORT": "28016", "PT_HPU_LAZY_MODE": "0", "HABANA_VISIBLE_MODULES": "0,1"},
    **{"VLLM_PROMPT_SEQ_BUCKET_MAX": "2048", "HF_HOME": "/run/gaudi-serving/home", "TOKENIZERS_PARALLELISM": "true"},
}
PATH = "reasoning_parser_plugin=/models/x.py"
PLUGIN = '{"reasoning_parser_plugin": "/models/x.py"}'
DOMAINS = ["--allowed-media-domains", "a.example", "b.example"]
BOX = {"ipc": "private", "capabilities": ["SYS_NICE"], "read_only": True}
# Directories of the node: the instance's own, one that it reads, and one that others may write to as well.
OWN: dict[str, Any] = {"source": "/var/lib/gaudi-serving/recipes/key/chat", "target": "/recipes", "read_only": False}
READ = {"source": "/data/models/x", "target": "/data/models/x", "read_only": True}
SHARED = {"source": "/data/shared", "target": "/recipes", "read_only": False}
# What may stand there after somebody has edited a plan.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def plan(host: str = "127.0.0.1", *, guarded: bool | None = True, **listen: Any) -> dict[str, Any]:
    """A plan with closed ports of its own."""
    return {"guarded": guarded, "listen": {"host": host, "port": 30001, "closed_ports": [28000, 28015], **listen}}


@given(PLANS)
def test_order_is_reflexive(one: dict[str, Any]) -> None:
    assert opened(one, copy.deepcopy(one)) == []


@given(PLANS, PLANS, PLANS)
def test_order_is_transitive(one: dict[str, Any], two: dict[str, Any], three: dict[str, Any]) -> None:
    if not opened(one, two) and not opened(two, three):
        assert not opened(one, three)


@given(PLANS, PLANS)
def test_order_is_antisymmetric_up_to_equal_openness(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert (not opened(one, two) and not opened(two, one)) is (of_plan(one) == of_plan(two))


@given(PLANS)
def test_missing_parts_count_as_open(one: dict[str, Any]) -> None:
    without = {part: {key: value for key, value in one.items() if key != part} for part in ("guarded", "listen")}
    assert opened(one, without["guarded"]) == []
    assert (opened(without["listen"], one) != []) is ("listen" in one)


@given(st.dictionaries(st.sampled_from(["guarded", "listen", "environment", "container", "arguments"]), JSON))
def test_a_plan_of_another_form_is_compared_as_well(one: dict[str, Any]) -> None:
    assert isinstance(of_plan(one), Openness)
    assert opened(one, plan()) != []


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (plan(), plan(guarded=False)),
        (plan(), plan(guarded=None)),
        (plan(), plan("10.20.0.11")),
        (plan("::1"), plan("node-1.example")),
        (plan("10.20.0.11"), plan("0.0.0.0")),
        (plan("fe80::1"), plan("::")),
        (plan("0.0.0.0"), plan("0.0.0.0", guarded=False, open_without_keys="a gateway asks")),
        (plan(guarded=False), plan("0.0.0.0", guarded=None)),
        (plan(), {"guarded": True, "listen": {"host": "127.0.0.1", "port": 30001}}),
        (plan(), {**plan(), "environment": {"VLLM_SERVER_DEV_MODE": "1"}}),
        (plan(), {**plan(), "container": {"environment": {"VLLM_TORCH_PROFILER_DIR": "/traces"}}}),
        (plan(), {**plan(), "arguments": ["vllm", "--enable_tokenizer_info_endpoint"]}),
        *((plan(), {**plan(), "arguments": ["vllm", *words]}) for words in (*TRUSTED, *ADDED)),
        *(
            (plan(), {**plan(), "environment": {name: "1"}})
            for name in ("VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_USE_RUST_FRONTEND")
        ),
        *(
            ({**plan(), "container": BOX}, {**plan(), "container": {**BOX, **more}})
            for more in ({"ipc": "host"}, {"ipc": None}, {"capabilities": ["SYS_NICE", "X"]}, {"read_only": False})
        ),
        ({**plan(), "container": {**BOX, "network": "bridge"}}, {**plan(), "container": {**BOX, "network": "host"}}),
        *(
            ({**plan(), "container": {**BOX, "mounts": [OWN, READ]}}, {**plan(), "container": {**BOX, "mounts": more}})
            for more in ([OWN, READ, SHARED], [OWN, {**READ, "read_only": False}])
        ),
        ({**plan(), "environment": {"VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0"}}, plan()),
        ({**plan(), "arguments": ["vllm", *DOMAINS[:2]]}, plan()),
        # Without it these releases write each request to the log.
        ({**plan(), "arguments": ["vllm", "--disable_log_requests"]}, plan()),
        ({**plan(), "arguments": ["--disable-log-requests"]}, {**plan(), "arguments": ["--no-disable-log-requests"]}),
        # Later ones write them only where they are asked to.
        *(
            ({**plan(), "arguments": [], "release": newer}, {**plan(), "arguments": [], "release": older})
            for newer in ("1.23", "1.24", "1.24.1")
            for older in ("1.18", "1.22", "")
        ),
        (
            {**plan(), "arguments": [], "release": "1.24.1"},
            {**plan(), "arguments": ["--enable-log-requests"], "release": "1.24.1"},
        ),
        # It runs what is in pickled tensors.
        (
            {**plan(), "arguments": ["--disable-log-requests"], "release": "1.22"},
            {**plan(), "arguments": ["--disable-log-requests"], "release": "1.18"},
        ),
        ({**plan(), "arguments": ["vllm", *DOMAINS[:2]]}, {**plan(), "arguments": ["vllm", *DOMAINS]}),
        ({**plan(), "arguments": ["vllm", *DOMAINS]}, {**plan(), "arguments": ["vllm", DOMAINS[0]]}),
        (
            {**plan(), "arguments": ["vllm", "--trust-remote-code", "--model", "/data/models/x"]},
            {**plan(), "arguments": ["vllm", "--trust-remote-code", "--model", "owner/x"]},
        ),
        (
            {**plan(), "environment": {"VLLM_HOST_IP": "127.0.0.1"}},
            {**plan(), "environment": {"VLLM_HOST_IP": "10.1.1.1"}},
        ),
        # Of an empty one the server makes the node's own address.
        ({**plan(), "environment": {"VLLM_HOST_IP": "127.0.0.1"}}, {**plan(), "environment": {"VLLM_HOST_IP": ""}}),
        (
            {**plan(), "environment": {"GLOO_SOCKET_IFNAME": "lo"}},
            {**plan(), "environment": {"GLOO_SOCKET_IFNAME": "eth0"}},
        ),
    ],
)
def test_a_plan_that_opens_more_is_more_open(less: dict[str, Any], more: dict[str, Any]) -> None:
    assert opened(less, more) == []
    assert len(opened(more, less)) >= 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Whoever is on the node without a key, or machines that have one.
        (plan(guarded=False), plan("0.0.0.0")),
        (plan("10.20.0.11"), plan("10.20.0.12")),
        (plan("0.0.0.0"), plan("::")),
        (plan("0.0.0.0"), plan("node-1.example")),
        # No path is compared with those below it.
        ({**plan(), "arguments": TRUSTED_PATH}, {**plan(), "arguments": ["--allowed-local-media-path=/b"]}),
        *(({**plan(), "arguments": DOMAINS[:2]}, {**plan(), "arguments": [DOMAINS[0], name]}) for name in ("c", "*")),
        # Not known to open nothing: whatever differs.
        *((plan(), {**plan(), "arguments": words}) for words in UNKNOWN),
        *((plan(), {**plan(), "environment": {name: "x"}}) for name in UNKNOWN_VARIABLES),
        *((plan(), {**plan(), "container": {"environment": {name: "x"}}}) for name in UNKNOWN_VARIABLES),
        # A firewall may let others to one of them only.
        (plan("0.0.0.0", port=30001), plan("0.0.0.0", port=30002)),
    ],
)
def test_plans_that_each_open_something_are_not_comparable(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert opened(one, other) != []
    assert opened(other, one) != []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (plan("127.0.0.1", port=30001), plan("localhost", port=30002)),
        (plan("node-1.example"), plan("NODE-1.EXAMPLE")),
        (plan(), {**plan(), "environment": {"VLLM_SERVER_DEV_MODE": "0"}, "arguments": ["--seed", "1"]}),
        *((plan(), {**plan(), "arguments": words}) for words in HARMLESS),
        (plan(), {**plan(), "environment": HARMLESS_ENVIRONMENT}),
        (plan(), {**plan(), "environment": {"VLLM_MEDIA_URL_ALLOW_REDIRECTS": "1"}, "arguments": [DOMAINS[0]]}),
    ],
)
def test_what_opens_nothing_makes_no_difference(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert of_plan(one) == of_plan(other)


def test_an_instance_of_another_model_has_directories_of_its_own() -> None:
    one, other = ({**plan(), "instance": "chat", "container": {**BOX, "mounts": [OWN, READ]}} for _ in range(2))
    theirs = {**OWN, "source": OWN["source"].replace("/key/", "/key-2/")}
    other["container"] = {**BOX, "mounts": [theirs, {**READ, "source": "/data/y"}]}
    assert opened(one, other) == opened(other, one) == []
    other["container"] = {**BOX, "mounts": [{**OWN, "source": OWN["source"].replace("chat", "shared")}, READ]}
    assert opened(other, one) != []


def test_the_path_of_local_media_is_compared() -> None:
    for words in (["--allowed-local-media-path", "/a"], ["--allowed_local_media_path=/a"]):
        assert of_plan({**plan(), "arguments": words}) == of_plan({**plan(), "arguments": TRUSTED_PATH})
    for words in (["--allowed-local-media-path", ""], ["--allowed-local-media-path"]):
        assert of_plan({**plan(), "arguments": words}) == of_plan(plan())


def test_clauses_are_printable() -> None:
    (clause,) = opened(plan("x\x1b]0;OWNED\x07\n"), plan())
    assert clause.isprintable()


def test_every_request_that_opens_an_instance_makes_a_plan_more_open() -> None:
    """Through the planner: what a site may say, one by one, beside a plan on loopback with keys."""
    closed = planned(guarded=True)
    requests: list[dict[str, Any]] = [
        {},
        {"host": "0.0.0.0", "guarded": True},
        {"host": "0.0.0.0", "open_without_keys": "a gateway asks"},
        {"guarded": True, "node_address": "10.20.0.11"},
        {"guarded": True, "extra_environment": {"VLLM_SERVER_DEV_MODE": "1"}},
        {"guarded": True, "extra_environment": {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}},
    ]
    for request in requests:
        made = planned(**request)
        assert "refused" not in made
        assert opened(made, closed) != []
        assert opened(closed, made) == []


def test_no_value_that_may_hold_an_account_is_in_a_message() -> None:
    more = {
        **plan(),
        "environment": {"HTTP_PROXY": "http://u:hunter2@proxy"},
        "arguments": [
            *("--kv-transfer-config", "hunter2", "--api-key=hunter2", "--otlp-traces-endpoint", "hunter2"),
            *("--model", "s3://u:hunter2@bucket/x"),
        ],
    }
    said = "; ".join(opened(more, plan()))
    assert "hunter2" not in said
    for name in ("HTTP_PROXY", "--kv-transfer-config", "--api-key", "--otlp-traces-endpoint"):
        assert name in said


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"environment": {"VLLM_LOGGING_LEVEL": "INFO"}}, {"environment": {"VLLM_LOGGING_LEVEL": "DEBUG"}}),
        ({"arguments": ["vllm", "--max-log-len", "0"]}, {"arguments": ["vllm"]}),
        # Python of a path, as --reasoning-parser-plugin loads it.
        ({"arguments": ["vllm", "--structured-outputs-config", PLUGIN]}, {"arguments": ["vllm"]}),
        ({"arguments": ["vllm", f"--structured-outputs-config.{PATH}"]}, {"arguments": ["vllm"]}),
    ],
)
def test_what_opens_something_with_some_values_is_restored_by_nobody_alone(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert opened({**plan(), **one}, {**plan(), **other})
    assert opened({**plan(), **other}, {**plan(), **one})


def test_no_known_option_of_json_has_a_key_that_is_an_option_which_opens_something() -> None:
    opening = {name.removeprefix("--").replace("-", "_") for name in openness.TRUSTED_WITH_VALUE}
    known = [
        (name, typed.choices)
        for release in RELEASES
        for name, typed in vendor.catalogue(release).release.typed_arguments.items()
        if typed.type == "json"
    ]
    assert ("--structured-outputs-config", True) in [(name, bool(opening & set(keys))) for name, keys in known]
    assert not [name for name, keys in known if opening & set(keys) and name in known_settings.HARMLESS_OPTIONS]


def test_no_name_that_is_compared_by_its_meaning_counts_as_one_that_opens_nothing() -> None:
    arguments = (*openness.MORE_PATHS_BY_ARGUMENT, *openness.TRUSTED_BY_ARGUMENT, *openness.TRUSTED_WITH_VALUE)
    assert not {*arguments, openness.LOCAL_FILES, openness.MEDIA_DOMAINS} & known_settings.HARMLESS_OPTIONS
    variables = (*openness.MORE_PATHS, *openness.TRUSTED_BY_VARIABLE, *openness.TRUSTED_WITHOUT_VARIABLE)
    harmless = known_settings.HARMLESS_VARIABLES | known_settings.PLANNED_VARIABLES
    assert not {*variables, *openness.BETWEEN_PROCESSES} & harmless


def test_a_plan_has_nothing_that_is_not_known() -> None:
    """Otherwise no change of an ordinary option would be rolled back without a person.

    All plans of a release for DeepSeek have Ray, and all over host NICs have the libraries of their image's network.
    Plans of models that see or hear have their limit of media, which a change of other options leaves alone.
    """
    sample = canonical_plans.sample()
    made = [made for _, made in canonical_plans.plans(among=sample) if "arguments" in made]
    assert made
    found = {name for one in made for name, _ in of_plan(one).others}
    assert found == {"--distributed-executor-backend", "--limit-mm-per-prompt", "LD_LIBRARY_PATH"}


def test_every_part_of_an_address_is_compared() -> None:
    """A new part of a plan's address has to be compared, or listed here with the reason why it opens nothing."""
    made = planned(host="0.0.0.0", open_without_keys="a gateway asks")
    shown = {"open_without_keys": "the reason that goes with a host and without a key, which are compared"}
    assert set(made["listen"]) - set(shown) == {"host", "port", "closed_ports"}
    assert beyond(of_plan(made), of_plan({**made, "guarded": True})) == ["it asks for no key"]
