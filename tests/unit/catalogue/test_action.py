"""The action: one report of the node for all requests, plans in their order, words for what is wrong."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible.module_utils.gaudi.request import options as request_options
from ansible.module_utils.gaudi.request.options import OPTIONS

from action_plugins.serving_plan import ActionModule
from library import node_report
from library import serving_plan as page
from plugin_utils import catalogue_files
from tests.golden.serving_cases import vendor
from tests.unit.planning.test_buckets import CONFIG, NUMBERS

# What a request says and a catalogue must not: what belongs to a site, to one instance, or to one look at it.
SITE = {
    "instance",
    "model",
    "weights",
    "model_config",
    "served_model_name",
    "share_card_with",
    "bucketing_file",
    "lora_modules",
    "modules",
    "profile",
    "recipe_cache",
    "trust_remote_code",
    "ipc",
    "guarded",
    "open_without_keys",
    "node_address",
    "network_interface",
    "log_step_graph_compilation",
    "log_step_graph_compilation_all",
    "log_step_cpu_fallbacks",
    "log_step_cpu_fallbacks_all",
    "metrics_gc_details",
    # Keys of a model's file by themselves.
    "limit_mm_per_prompt",
    "mm_processor_kwargs",
}


def test_a_catalogue_may_say_whatever_a_request_may_except_what_belongs_to_a_site() -> None:
    schema = json.loads((catalogue_files.CATALOG / "schemas" / "model.schema.json").read_text(encoding="utf-8"))
    assert set(schema["$defs"]["options"]["properties"]) | SITE == set(OPTIONS)
    assert not set(schema["$defs"]["options"]["properties"]) & SITE


def test_what_is_documented_is_what_a_task_can_say() -> None:
    documented = yaml.safe_load(page.DOCUMENTATION)["options"]
    task = ActionModule.SPEC
    assert set(documented) == set(task)
    for name, option in task.items():
        for key in ("type", "required", "default", "choices", "elements"):
            # The command line gives the list of requests as text.
            if name != "requests" or key not in ("type", "elements"):
                assert documented[name].get(key) == option.get(key), (name, key)
    suboptions = documented["requests"]["suboptions"]
    assert tuple(suboptions["dtype"]["choices"]) == request_options.DTYPES
    assert tuple(suboptions["kv_cache_dtype"]["choices"]) == request_options.KV_CACHE_DTYPES
    for name in ("graph_prompt_strategy", "graph_decode_strategy"):
        assert tuple(suboptions[name]["choices"]) == request_options.STRATEGIES


def report(**changes: Any) -> dict[str, Any]:
    """What a free node reports of its cards."""
    cards = {"cards": vendor.topology("oam8")["cards"], "schema": 1}
    return {"cards": cards, "reservations": {"reservations": {}, "damage": ""}, "last_starts": {}, **changes}


class TaggedText(str):
    """A text with a type of its own, as Ansible's are."""

    __slots__ = ()


class ReportingNode:
    """Stands in for the node: reports what a test gives it, and remembers how it was called."""

    def __init__(self, **changes: Any) -> None:
        self.report = report(**changes)
        self.calls: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def __call__(self, name: str, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((name, arguments, task_vars))
        nothing = {
            "weights": {path: {"there": False} for path in arguments.get("weights", [])},
            "files": {path: {"text": None} for path in arguments.get("files", [])},
        }
        parts = {**nothing, **self.report}
        return {"changed": False, "report": {part: parts[part] for part in arguments["parts"]}}


def run(
    options: dict[str, Any], *, transport: str = "ssh", node: Any = None, **site: object
) -> tuple[dict[str, Any], Any]:
    task = MagicMock()
    task.args = {"release": "1.22", **options}
    task.async_val = 0
    task.action = "serving_plan"
    connection = MagicMock(transport=transport)
    action = ActionModule(task, connection, MagicMock(check_mode=False), MagicMock(), MagicMock(), MagicMock())
    reporting = node or ReportingNode()
    action._execute_module = reporting
    variables = {"ansible_python_interpreter": "/usr/bin/python3.9", **site}
    result: dict[str, Any] = action.run(task_vars=variables)
    return result, reporting


def test_one_report_with_the_weights_that_the_requests_name() -> None:
    requests = [{"instance": "a", "model": "qwen3-8b"}, {"instance": "b", "model": "qwen3-8b", "port": 30002}]
    requests += [{"weights": "/w/own", "port": 30003}]
    site = {"weights_root": "/w", "image_registry": "mirror:5000"}
    result, node = run({"requests": requests, **site})
    ((name, arguments, _),) = node.calls
    assert name == "node_report"
    assert arguments == {
        "parts": ["cards", "last_starts", "reservations", "weights"],
        "weights": ["/w/Qwen3-8B", "/w/own"],
    }
    assert [plan["instance"] for plan in result["plans"]] == ["a", "b", None]
    assert {plan["image"].partition("/")[0] for plan in result["plans"]} == {"mirror:5000"}
    assert result["release"]["name"] == "1.22"
    assert "ansible-playbook playbooks/fetch_weights.yml -e model=qwen3-8b" in result["how_to_get"]["a"]
    assert "hf download Qwen/Qwen3-8B --revision " in result["how_to_get"]["a"]


def test_what_the_node_has_reported_is_planned_with() -> None:
    held = {"other": {"cards": [{"module_id": 0, "serial": None}], "since": "x"}}
    counted = {"there": True, "bytes": 2000, "parameters": {"BF16": 1000}, "missing": [], "converted": False}
    weights = {**counted, "fits_published": True, "config": None, "foreign": {}, "pickled": False, "fetched": True}
    node = ReportingNode(
        reservations={"reservations": held, "damage": "cards.lock is damaged"}, weights={"/w/QwQ-32B": weights}
    )
    result, _ = run({"requests": [{"instance": "a", "model": "qwq-32b"}], "weights_root": "/w"}, node=node)
    (plan,) = result["plans"]
    assert [module["module_id"] for module in plan["modules"]] == [4, 5]
    assert plan["memory"]["weights_bytes"] == 2000
    assert result["reserved"] == {"0": "other"}
    assert len(result["topology"]["cards"]) == 8


def test_a_driver_that_is_not_there_yet_is_foreseen_by_pci_id() -> None:
    _, node = run({"requests": [{"model": "qwen3-8b"}], "foresee": True})
    assert node.calls[0][1]["foresee"]["1da3:1020"] == "HL-225"
    assert set(node.calls[0][1]) <= set(node_report.ARGUMENT_SPEC)


@pytest.mark.parametrize(
    ("part", "id_"),
    [
        ({"error": "cards.lock is damaged", "refused_id": "reservations_damaged"}, "reservations_damaged"),
        ({"error": "/var/lib/x cannot be read: Permission denied."}, "node_unreadable"),
    ],
)
def test_a_node_that_cannot_tell_who_has_which_card_fails_the_task(part: dict[str, str], id_: str) -> None:
    with pytest.raises(AnsibleActionFail) as failed:
        run({"requests": [{"model": "qwen3-8b"}], "on_refusal": "report"}, node=ReportingNode(reservations=part))
    assert failed.value.result["refused_id"] == id_
    assert part["error"] in str(failed.value)


def test_weights_that_cannot_be_read_refuse_their_request_alone() -> None:
    error = "/w/a/m.safetensors cannot be read: Permission denied."
    weights: dict[str, Any] = {"/w/a": {"error": error}, "/w/b": {"there": False}}
    requests = [{"weights": path} for path in weights]
    result, _ = run({"requests": requests, "on_refusal": "report"}, node=ReportingNode(weights=weights))
    assert result["plans"][0]["refused_id"] == "node_unreadable"
    assert error in str(result["plans"][0]["refused"])
    assert "refused" not in result["plans"][1]


def test_weights_of_a_hub_are_served_from_their_folder_and_fetched_into_it() -> None:
    request = {"instance": "a", "weights": "Qwen/Qwen3-14B"}
    result, node = run({"requests": [request], "weights_root": "/w"})
    assert node.calls[0][1]["weights"] == ["/w/Qwen3-14B"]
    (plan,) = result["plans"]
    assert (plan["requires"]["weights_path"], plan["served_model_name"]) == ("/w/Qwen3-14B", "Qwen/Qwen3-14B")
    (source,) = result["source_plans"]["a"]
    assert source["fetch"]["directory"] == "Qwen3-14B"
    assert source["fetch"]["repositories"] == {"huggingface": {"repository": "Qwen/Qwen3-14B", "revision": "main"}}
    assert "fetch_weights.yml -e repository=Qwen/Qwen3-14B" in result["how_to_get"]["a"]


@pytest.mark.parametrize(
    "beside",
    [{"weights": "evil/Qwen3-8B"}, {"model": "qwen3-8b"}, {"model": "qwen3-14b", "share_card_with": ["qwen3-8b"]}],
)
def test_a_folder_is_not_that_of_two_models(beside: dict[str, Any]) -> None:
    """Both have the same last part of their name, and one of them would be served as the other."""
    requests = [{"instance": "a", "weights": "other/Qwen3-8B"}, {"instance": "b", **beside}]
    result, _ = run({"requests": requests, "on_refusal": "report", "weights_root": "/w"})
    assert result["plans"][0]["refused_id"] == "folder_of_two_models"
    assert "/w/Qwen3-8B" in result["plans"][0]["refused"]
    assert "a" not in result["source_plans"]
    assert (result["plans"][1].get("refused_id") == "folder_of_two_models") == ("weights" in beside)


@pytest.mark.parametrize(("name", "use"), [("quantization", "calibrations"), ("Qwen3-8B.partial", "unfinished")])
def test_a_hubs_id_gets_no_folder_that_has_another_use(name: str, use: str) -> None:
    request = {"instance": "a", "weights": f"evil/{name}"}
    result, _ = run({"requests": [request], "on_refusal": "report", "weights_root": "/w"})
    assert result["plans"][0]["refused_id"] == "folder_of_two_models"
    assert use in result["plans"][0]["refused"]


def test_one_model_may_be_served_twice() -> None:
    requests = [
        {"instance": "a", "weights": "Qwen/Qwen3-8B", "port": 30001},
        {"instance": "b", "weights": "Qwen/Qwen3-8B", "port": 30002},
        {"instance": "c", "model": "qwen3-8b", "port": 30003},
    ]
    result, _ = run({"requests": requests, "on_refusal": "report", "weights_root": "/w"})
    assert not any("refused" in plan for plan in result["plans"])


def test_a_site_names_the_commit_of_a_hubs_weights_and_of_measurements() -> None:
    measurements = "Yi30/ds-r1-0528-default-pile-g2-0529"
    commits = {"Qwen/Qwen3-14B": "a" * 40, measurements: "b" * 40}
    own = {"instance": "a", "weights": "Qwen/Qwen3-14B"}
    result, _ = run({"requests": [own], "weights_root": "/w"}, model_weights_commits=commits)
    (source,) = result["source_plans"]["a"]
    assert source["fetch"]["repositories"]["huggingface"]["revision"] == "a" * 40
    deepseek: dict[str, Any] = {"instance": "b", "model": "deepseek-r1-0528", "dtype": "fp8"}
    options = {"requests": [deepseek], "weights_root": "/w", "release": "deepseek-r1"}
    result, _ = run(options, model_weights_commits=commits)
    fetched = [source["fetch"]["repositories"]["huggingface"] for source in result["source_plans"]["b"]]
    assert {"repository": measurements, "revision": "b" * 40} in fetched


@pytest.mark.parametrize("commits", [{"Qwen/Qwen3-14B": "main"}, {"Qwen": "a" * 40}, ["a"], {"o/m": 7}])
def test_commits_that_are_none_are_refused(commits: object) -> None:
    with pytest.raises(AnsibleActionFail, match="model_weights_commits"):
        run({"requests": [{"instance": "a", "weights": "/w/x"}]}, model_weights_commits=commits)


def test_what_is_fetched_is_never_the_nodes_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = {"directory": "Qwen3-8B", "repositories": {}, "bytes": 0, "measured_cards": 0}
    named = {"source_plans": {"other": [{"fetch": fetch, "convert": None}]}, "how_to_get": {"other": "this way"}}
    honest = ReportingNode.__call__
    more = {**named, "plans": [], "pins": []}
    monkeypatch.setattr(ReportingNode, "__call__", lambda *asked, **words: {**honest(*asked, **words), **more})
    node = ReportingNode(**named)
    result, _ = run({"requests": [{"instance": "a", "model": "qwen3-8b"}], "weights_root": "/w"}, node=node)
    fetched = {name: [plan["fetch"]["repositories"] for plan in each] for name, each in result["source_plans"].items()}
    file = catalogue_files.resolve("models", "model", "qwen3-8b")
    assert fetched == {"a": [catalogue_files.load_checked("model", file)["repositories"]]}
    assert "other" not in result["how_to_get"]


def test_what_is_pinned_stands_beside_the_plans() -> None:
    requests = [{"instance": "a", "model": "nope"}, {"instance": "b", "weights": "/w/own"}]
    result, _ = run({"requests": requests, "on_refusal": "report", "weights_root": "/w"})
    assert result["pins"] == [[], ["weights of the site, not pinned", "image not pinned"]]
    assert result["image_base"] == ""


@pytest.mark.parametrize("digest", ["", f"@sha256:{'a' * 64}"])
def test_the_base_of_images_that_are_built_stands_beside_the_plans(digest: str) -> None:
    base = f"registry.example.com/gaudi/base:1{digest}"
    options = {"requests": [{"instance": "b", "weights": "/w/own"}], "weights_root": "/w"}
    result, _ = run({**options, "image": {"build": True, "base": base}}, serving_image_digest=f"sha256:{'b' * 64}")
    assert result["image_base"] == base
    assert result["pins"][0][-1] == f"image built on a base {'pinned by digest' if digest else 'taken by its tag'}"


def test_refusals_keep_their_place() -> None:
    requests = [
        {"instance": "a", "model": "nope"},
        {"instance": "b", "model": "qwen3-8b"},
        5,
        {"weights": "/data/w", "port": 2000},
    ]
    result, node = run({"requests": requests, "on_refusal": "report"})
    assert node.calls[0][1]["weights"] == ["/data/models/Qwen3-8B", "/data/w"]
    first, second, third, fourth = result["plans"]
    assert first["instance"] == "a"
    assert '"nope"' in first["refused"]
    assert (first["refused_id"], third["refused_id"]) == ("not_in_catalogue", "not_a_mapping")
    assert second["model"] == "qwen3-8b"
    assert "5" in third["refused"]
    assert "refused" not in fourth


def test_a_refused_request_fails_the_task_or_is_reported_beside_the_others() -> None:
    requests = [{"instance": "a", "model": "qwq-32b"}, {"instance": "b", "weights": "/m/x", "port": 0}]
    failed, _ = run({"requests": requests})
    assert failed["failed"]
    assert "port" in failed["msg"]
    assert failed["refused_id"] == failed["plans"][1]["refused_id"] == "out_of_range"
    reported, _ = run({"requests": requests, "on_refusal": "report"})
    assert "failed" not in reported
    assert sorted(reported["plans"][1]) == ["instance", "refused", "refused_id"]


def test_a_refusal_fails_before_the_node_is_asked() -> None:
    with pytest.raises(AnsibleActionFail, match=r'"qwen3-8".*qwen3-8b') as failed:
        run({"requests": [{"model": "qwen3-8"}]})
    assert failed.value.result["refused_id"] == "not_in_catalogue"


@pytest.mark.parametrize("requests", [[{"instance": "a", "model": "qwen3-8b"}], [{"instance": "a"}, {"instance": "b"}]])
def test_an_unknown_release_is_reported_for_every_request(requests: list[Any]) -> None:
    result, node = run({"requests": requests, "release": "9.99", "on_refusal": "report"})
    assert not node.calls
    assert [plan["instance"] for plan in result["plans"]] == [request["instance"] for request in requests]
    assert all('"9.99"' in plan["refused"] for plan in result["plans"])
    assert {plan["refused_id"] for plan in result["plans"]} == {"not_in_catalogue"}
    with pytest.raises(AnsibleActionFail, match=r"9\.99") as failed:
        run({"requests": requests, "release": "9.99"})
    assert failed.value.result["refused_id"] == "not_in_catalogue"


def test_a_config_json_may_be_text_and_is_read_or_refused() -> None:
    config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "num_attention_heads": 7}
    good, bad = {"weights": "/w/a", "model_config": json.dumps(config)}, {"weights": "/w/b", "model_config": "{"}
    result, _ = run({"requests": [bad, {**good, "tensor_parallel_size": 2}], "on_refusal": "report"})
    assert result["plans"][1]["refused_id"] == "heads_not_divisible"
    words = 'The config.json of "/w/b" is not valid JSON'
    assert result["plans"][0]["refused"].startswith(f"{words}: Expecting property name")
    for text in ("", "\xff\x00", "[" * 100000):
        with pytest.raises(AnsibleActionFail, match=words):
            run({"requests": [{**bad, "model_config": text}]})


def test_a_topology_that_is_given_asks_no_node() -> None:
    topology = {"cards": [{"module_id": 1, "name": "HL-225"}]}
    result, node = run({"requests": [{"model": "qwen3-8b", "tensor_parallel_size": 1}], "topology": topology})
    assert node.calls == []
    assert result["topology"]["cards"][0]["users"] == []
    assert [module["module_id"] for module in result["plans"][0]["modules"]] == [1]
    assert result["reserved"] == {}
    for wrong, words in (({}, "topology: It is empty"), ({"cards": 5}, "topology: cards must be a list, not 5")):
        with pytest.raises(AnsibleActionFail, match=words):
            run({"requests": [{"model": "qwen3-8b"}], "topology": wrong, "on_refusal": "report"})


def test_a_file_of_buckets_is_read_on_the_controller_for_a_topology_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a test has to itself lies below /tmp.
    monkeypatch.setattr("ansible.module_utils.gaudi.base.places.EVERYBODYS", ())
    file = tmp_path / "buckets.txt"
    request = {"weights": "/models/Qwen3-8B", "model_config": CONFIG, **NUMBERS, "bucketing_file": str(file)}
    options = {"requests": [request], "release": "1.24.1", "topology": vendor.topology("oam8"), "on_refusal": "report"}
    absent = run(options)[0]["plans"][0]
    assert str(file) in " ".join(absent["warnings"])
    file.write_text("(1, 128, 0)\n(1, 1, 34)\n", encoding="utf-8")
    assert run(options)[0]["plans"][0]["buckets"]["prompt"] == [[1, 128, 0]]
    file.write_text("(1, 128, 0)\n(1, 1)\n", encoding="utf-8")
    assert run(options)[0]["plans"][0]["refused_id"] == "bucket_file_line"


def test_no_requests_or_none_that_can_be_planned_still_show_the_node() -> None:
    for requests in ([], "[]", [{"model": "nope"}]):
        result, node = run({"requests": requests, "on_refusal": "report", "page": True})
        assert node.calls[0][1]["parts"] == ["cards", "last_starts", "reservations"]
        assert len(result["topology"]["cards"]) == 8
        assert "8 x HL-225" in result["page"]


def test_without_a_release_and_without_requests_the_task_fails() -> None:
    with pytest.raises(AnsibleActionFail, match=r"9\.99") as failed:
        run({"requests": [], "release": "9.99", "on_refusal": "report"})
    assert failed.value.result["refused_id"] == "not_in_catalogue"


def test_a_module_that_fails_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReportingNode, "__call__", lambda *_, **__: {"failed": True, "msg": "no Python"})
    result, _ = run({"requests": [{"model": "qwen3-8b"}], "page": True})
    assert result == {"failed": True, "msg": "no Python"}


def test_the_controller_reports_with_the_playbooks_own_interpreter() -> None:
    requests = [{"model": "qwen3-8b"}]
    assert run({"requests": requests}, transport="local")[1].calls[0][2]["ansible_python_interpreter"] == sys.executable
    assert run({"requests": requests})[1].calls[0][2]["ansible_python_interpreter"] == "/usr/bin/python3.9"


@pytest.mark.parametrize(
    "requests",
    [{"model": "qwen3-8b"}, [{"model": "qwen3-8b"}], '{"model": "qwen3-8b"}', "[{model: qwen3-8b}]"],
)
def test_requests_are_one_mapping_or_a_list_or_text_of_either(requests: Any) -> None:
    result, _ = run({"requests": requests, "on_refusal": "report"})
    assert [plan["model"] for plan in result["plans"]] == ["qwen3-8b"]


@pytest.mark.parametrize(
    ("options", "id_", "seen"),
    [
        ({"requests": "qwen3-8b"}, "not_a_list", '"qwen3-8b"'),
        ({"requests": 5}, "not_a_list", "5"),
        ({"requests": "[{"}, "not_yaml", '"[{"'),
        ({"requests": "[{model:"}, "not_yaml", '"[{model:"'),
        ({"requests": "nonsense: ["}, "not_yaml", '"nonsense: ["'),
        ({"requests": [], "topology_file": "/no/such/file.yml"}, "file_unreadable", "/no/such/file.yml"),
        ({"requests": [], "topology_file": str(catalogue_files.CATALOG.parent / "ansible.cfg")}, "not_yaml", "cfg"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(options: dict[str, Any], id_: str, seen: str) -> None:
    with pytest.raises(AnsibleActionFail) as caught:
        run({**options, "on_refusal": "report"})
    assert caught.value.result["refused_id"] == id_
    assert seen in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_request_that_is_no_mapping_is_refused_in_its_place() -> None:
    result, _ = run({"requests": ["qwen3-8b"], "on_refusal": "report"})
    assert [plan["refused_id"] for plan in result["plans"]] == ["not_a_mapping"]
    assert '"qwen3-8b"' in result["plans"][0]["refused"]


def test_options_of_the_task_are_checked() -> None:
    for options in ({"requests": [], "on_refusal": "ignore"}, {"requests": [], "relaese": "1.22"}, {}):
        with pytest.raises(Exception, match=r"on_refusal|relaese|requests"):
            run(options)


def test_a_refusal_that_advises_another_release_names_those_that_serve() -> None:
    request = {"model": "qwen3-8b", "data_parallel_size": 2}
    result, node = run({"requests": [request], "on_refusal": "report"})
    (refused,) = result["plans"]
    assert "1.24.1" in refused["refused"], refused
    assert "another release" not in refused["refused"]
    assert len(node.calls) == 1


def test_values_of_the_inventory_are_planned_as_json_has_them() -> None:
    """A plan is compared with the one on the node, which was read from JSON."""
    day = datetime.date(2026, 1, 5)
    request = {"weights": "/w/own", "extra_environment": {"DAY": day}, "served_model_name": TaggedText("own")}
    result, _ = run({"requests": [request], "on_refusal": "report"})
    (plan,) = result["plans"]
    assert plan["environment"]["DAY"] == "2026-01-05"
    assert type(plan["served_model_name"]) is str
