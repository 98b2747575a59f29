"""The action: one call of the module for all requests, answers in their order, words for what is wrong."""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible.module_utils.gaudi.cards.given import given_topology
from ansible.module_utils.gaudi.request import options as request_options
from ansible.module_utils.gaudi.request.options import OPTIONS

from action_plugins.serving_plan import ActionModule
from library import serving_plan as module
from plugin_utils import catalogue_files, releases

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
    documented = yaml.safe_load(module.DOCUMENTATION)["options"]
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


def test_the_action_passes_only_what_the_module_takes() -> None:
    own = {"topology_file", "page"}
    assert set(ActionModule.SPEC) - own <= set(module.ARGUMENT_SPEC)


NODE: dict[str, Any] = given_topology({"cards": []})


class Planner:
    """Stands in for the node: answers each request with a small plan, and remembers what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def __call__(self, name: str, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((name, arguments, task_vars))
        plans = [
            {
                "instance": request.get("instance"),
                "model": request.get("model"),
                "image": "i",
                "requires": {"weights_path": request.get("weights") or "/data/models/X"},
            }
            for request in arguments["requests"]
        ]
        return {"changed": False, "plans": plans, "topology": NODE}


def run(options: dict[str, Any], *, transport: str = "ssh", **site: object) -> tuple[dict[str, Any], Planner]:
    task = MagicMock()
    task.args = {"release": "1.22", **options}
    task.async_val = 0
    task.action = "serving_plan"
    connection = MagicMock(transport=transport)
    action = ActionModule(task, connection, MagicMock(check_mode=False), MagicMock(), MagicMock(), MagicMock())
    planner = Planner()
    action._execute_module = planner
    variables = {"ansible_python_interpreter": "/usr/bin/python3.9", **site}
    result: dict[str, Any] = action.run(task_vars=variables)
    return result, planner


def test_one_call_with_the_files_the_requests_name() -> None:
    requests = [{"instance": "a", "model": "qwen3-8b"}, {"instance": "b", "model": "qwen3-8b"}, {"weights": "/w"}]
    result, planner = run({"requests": requests, "weights_root": "/w", "image_registry": "mirror:5000"})
    ((name, arguments, _),) = planner.calls
    assert name == "serving_plan"
    assert arguments["requests"] == requests
    assert set(arguments["models"]) == {"qwen3-8b"}
    assert arguments["release"]["name"] == "1.22"
    assert "HL-225" in arguments["cards"]["cards"]
    assert (arguments["weights_root"], arguments["image_registry"]) == ("/w", "mirror:5000")
    assert "topology" not in arguments
    assert [plan["instance"] for plan in result["plans"]] == ["a", "b", None]
    assert result["how_to_get"]["a"].startswith("Get them with: ansible-playbook playbooks/fetch_weights.yml -e model=")
    assert "hf download Qwen/Qwen3-8B --revision " in result["how_to_get"]["a"]


def test_weights_of_a_hub_are_served_from_their_folder_and_fetched_into_it() -> None:
    request = {"instance": "a", "weights": "Qwen/Qwen3-14B"}
    result, planner = run({"requests": [request], "weights_root": "/w"})
    ((_, arguments, _),) = planner.calls
    asked = {"instance": "a", "weights": "/w/Qwen3-14B", "served_model_name": "Qwen/Qwen3-14B"}
    assert arguments["requests"] == [asked]
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
    assert ("refused" in result["plans"][1]) == ("weights" in beside)


@pytest.mark.parametrize(("name", "use"), [("quantization", "calibrations"), ("Qwen3-8B.partial", "unfinished")])
def test_a_hubs_id_gets_no_folder_that_has_another_use(name: str, use: str) -> None:
    request = {"instance": "a", "weights": f"evil/{name}"}
    result, _ = run({"requests": [request], "on_refusal": "report", "weights_root": "/w"})
    assert result["plans"][0]["refused_id"] == "folder_of_two_models"
    assert use in result["plans"][0]["refused"]


def test_one_model_may_be_served_twice() -> None:
    requests = [{"instance": name, "weights": "Qwen/Qwen3-8B"} for name in "ab"] + [
        {"instance": "c", "model": "qwen3-8b"}
    ]
    result, _ = run({"requests": requests, "on_refusal": "report", "weights_root": "/w"})
    assert not any("refused" in plan for plan in result["plans"])


def test_a_site_names_the_commit_of_a_hubs_weights_and_of_measurements() -> None:
    measurements = "Yi30/ds-r1-0528-default-pile-g2-0529"
    commits = {"Qwen/Qwen3-14B": "a" * 40, measurements: "b" * 40}
    requests = [{"instance": "a", "weights": "Qwen/Qwen3-14B"}, {"instance": "b", "model": "deepseek-r1-0528"}]
    result, planner = run({"requests": requests, "weights_root": "/w"}, model_weights_commits=commits)
    (source,) = result["source_plans"]["a"]
    assert source["fetch"]["repositories"]["huggingface"]["revision"] == "a" * 40
    ((_, arguments, _),) = planner.calls
    entry = arguments["models"]["deepseek-r1-0528"]
    assert entry["measurements"]["repositories"]["huggingface"] == {"repository": measurements, "revision": "b" * 40}


@pytest.mark.parametrize("commits", [{"Qwen/Qwen3-14B": "main"}, {"Qwen": "a" * 40}, ["a"], {"o/m": 7}])
def test_commits_that_are_none_are_refused(commits: object) -> None:
    with pytest.raises(AnsibleActionFail, match="model_weights_commits"):
        run({"requests": [{"instance": "a", "weights": "/w/x"}]}, model_weights_commits=commits)


@pytest.mark.parametrize("failed", [False, True])
def test_what_is_fetched_is_never_the_nodes_answer(failed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = {"directory": "Qwen3-8B", "repositories": {}, "bytes": 0, "measured_cards": 0}
    named = {"source_plans": {"other": [{"fetch": fetch, "convert": None}]}, "how_to_get": {"other": "this way"}}
    plan = {"instance": "a", "model": "qwen3-8b", "image": "i", "requires": {"weights_path": "/w/Qwen3-8B"}}
    answer = {"changed": False, "plans": [plan], "topology": NODE, "failed": failed, **named}
    monkeypatch.setattr(Planner, "__call__", lambda *_, **__: answer)
    result, _ = run({"requests": [{"instance": "a", "model": "qwen3-8b"}], "weights_root": "/w"})
    planned = result.get("source_plans", {})
    fetched = {name: [source["fetch"]["repositories"] for source in each] for name, each in planned.items()}
    file = catalogue_files.resolve("models", "model", "qwen3-8b")
    expected = catalogue_files.load_checked("model", file)["repositories"]
    assert fetched == ({} if failed else {"a": [expected]})
    assert "other" not in result.get("how_to_get", {})


def test_what_is_pinned_stands_beside_the_plans() -> None:
    requests = [{"instance": "a", "model": "nope"}, {"instance": "b", "model": "qwen3-8b"}]
    result, _ = run({"requests": requests, "on_refusal": "report", "weights_root": "/w"})
    # The stand-in's plan is for a folder that the catalogue does not know.
    assert result["pins"] == [[], ["weights of the site, not pinned", "image not pinned"]]


def test_refusals_keep_their_place() -> None:
    requests = [{"instance": "a", "model": "nope"}, {"instance": "b", "model": "qwen3-8b"}, 5, {"weights": "/w"}]
    result, planner = run({"requests": requests, "on_refusal": "report"})
    assert planner.calls[0][1]["requests"] == [requests[1], requests[3]]
    first, second, third, fourth = result["plans"]
    assert first["instance"] == "a"
    assert '"nope"' in first["refused"]
    assert (first["refused_id"], third["refused_id"]) == ("not_in_catalogue", "not_a_mapping")
    assert second["model"] == "qwen3-8b"
    assert "5" in third["refused"]
    assert "refused" not in fourth


def test_a_refusal_fails_before_the_node_is_asked() -> None:
    with pytest.raises(AnsibleActionFail, match=r'"qwen3-8".*qwen3-8b') as failed:
        run({"requests": [{"model": "qwen3-8"}]})
    assert failed.value.result["refused_id"] == "not_in_catalogue"


@pytest.mark.parametrize("requests", [[{"instance": "a", "model": "qwen3-8b"}], [{"instance": "a"}, {"instance": "b"}]])
def test_an_unknown_release_is_reported_for_every_request(requests: list[Any]) -> None:
    result, planner = run({"requests": requests, "release": "9.99", "on_refusal": "report"})
    assert not planner.calls
    assert [plan["instance"] for plan in result["plans"]] == [request["instance"] for request in requests]
    assert all('"9.99"' in plan["refused"] for plan in result["plans"])
    assert {plan["refused_id"] for plan in result["plans"]} == {"not_in_catalogue"}
    with pytest.raises(AnsibleActionFail, match=r"9\.99") as failed:
        run({"requests": requests, "release": "9.99"})
    assert failed.value.result["refused_id"] == "not_in_catalogue"


def test_a_config_json_may_be_text_and_is_read_or_refused() -> None:
    good, bad = {"weights": "/w/a", "model_config": '{"model_type": "qwen2"}'}, {"weights": "/w/b", "model_config": "{"}
    result, planner = run({"requests": [bad, good], "on_refusal": "report"})
    assert planner.calls[0][1]["requests"] == [{"weights": "/w/a", "model_config": {"model_type": "qwen2"}}]
    words = 'The config.json of "/w/b" is not valid JSON'
    assert result["plans"][0]["refused"].startswith(f"{words}: Expecting property name")
    for text in ("", "\xff\x00", "[" * 100000):
        with pytest.raises(AnsibleActionFail, match=words):
            run({"requests": [{**bad, "model_config": text}]})


def test_a_topology_is_checked_before_the_node_is_asked() -> None:
    given = {"cards": [{"module_id": 1}]}
    _, planner = run({"requests": [{"model": "qwen3-8b"}], "topology": given})
    assert planner.calls[0][1]["topology"]["cards"][0]["users"] == []
    for topology, words in (({}, "topology: It is empty"), ({"cards": 5}, "topology: cards must be a list, not 5")):
        with pytest.raises(AnsibleActionFail, match=words):
            run({"requests": [{"model": "qwen3-8b"}], "topology": topology, "on_refusal": "report"})


def test_no_requests_or_none_that_can_be_planned_still_show_the_node() -> None:
    for requests in ([], "[]", [{"model": "nope"}]):
        result, planner = run({"requests": requests, "on_refusal": "report", "page": True})
        assert planner.calls[0][1]["requests"] == []
        assert result["topology"] == NODE
        assert "no card" in result["page"]


def test_without_a_release_and_without_requests_the_task_fails() -> None:
    with pytest.raises(AnsibleActionFail, match=r"9\.99") as failed:
        run({"requests": [], "release": "9.99", "on_refusal": "report"})
    assert failed.value.result["refused_id"] == "not_in_catalogue"


def test_a_module_that_fails_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Planner, "__call__", lambda *_, **__: {"failed": True, "msg": "no driver"})
    result, _ = run({"requests": [{"model": "qwen3-8b"}], "page": True})
    assert result == {"failed": True, "msg": "no driver"}


def test_the_controller_plans_with_the_playbooks_own_interpreter() -> None:
    requests = [{"model": "qwen3-8b"}]
    assert run({"requests": requests}, transport="local")[1].calls[0][2]["ansible_python_interpreter"] == sys.executable
    assert run({"requests": requests})[1].calls[0][2]["ansible_python_interpreter"] == "/usr/bin/python3.9"


@pytest.mark.parametrize(
    "requests",
    [{"model": "qwen3-8b"}, [{"model": "qwen3-8b"}], '{"model": "qwen3-8b"}', "[{model: qwen3-8b}]"],
)
def test_requests_are_one_mapping_or_a_list_or_text_of_either(requests: Any) -> None:
    _, planner = run({"requests": requests, "on_refusal": "report"})
    assert planner.calls[0][1]["requests"] == [{"model": "qwen3-8b"}]


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


@pytest.mark.parametrize("key", ["refused", "warnings"])
def test_an_answer_that_advises_another_release_is_asked_again_with_all_of_them(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ["It is not served. Serve other weights, or use another release."]

    def refuses(self: Planner, name: str, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((name, arguments, task_vars))
        refused = {"instance": "a", "refused": "It is not served.", "refused_id": "unsupported_quantization"}
        answer = {**refused, key: said if key == "warnings" else said[0]}
        return {"changed": False, "plans": [answer], "topology": NODE}

    monkeypatch.setattr(Planner, "__call__", refuses)
    _, planner = run({"requests": [{"instance": "a", "weights": "/w"}], "on_refusal": "report"})
    first, second = (arguments for _, arguments, _ in planner.calls)
    assert "others" not in first
    assert [each["name"] for each in second["others"]] == [name for name in releases.names() if name != "1.22"]
    said[0] = "It is not served. Serve other weights."
    _, planner = run({"requests": [{"instance": "a", "weights": "/w"}], "on_refusal": "report"})
    assert len(planner.calls) == 1
