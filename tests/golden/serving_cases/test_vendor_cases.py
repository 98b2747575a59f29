"""All recorded cases: match the vendor where it is right, do better where it is not, refuse what cannot work."""

from __future__ import annotations

from typing import Any

from tests.golden.plan_checks import problems

from . import vendor

NETWORK = {"VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME"}
CASES: list[dict[str, Any]] = vendor.CASES["cases"]


def of(policy: str) -> list[dict[str, Any]]:
    """The cases of one policy."""
    return [case for case in CASES if case["policy"] == policy]


def test_all_cases_are_there() -> None:
    assert {policy: len(of(policy)) for policy in ("match", "deviate", "reject")} == {
        "match": 75,
        "deviate": 30,
        "reject": 13,
    }


def test_the_plan_is_the_vendors_where_the_vendor_is_right() -> None:
    found = {}
    for case in of("match"):
        theirs, plan = case["vendor_result"], vendor.plan_case(case)
        if not theirs["environment"] and not theirs["arguments"]:
            found[case["name"]] = [] if "refused" in plan else ["the vendor starts nothing, ours is a plan"]
        else:
            found[case["name"]] = [plan["refused"]] if "refused" in plan else compare(case, plan)
    assert {name: differences for name, differences in found.items() if differences} == {}


def compare(case: dict[str, Any], plan: dict[str, Any]) -> list[str]:
    theirs = case["vendor_result"]
    own_choice = "-m" not in case["vendor_arguments"] and not case["release"].startswith("deepseek")
    environment = vendor.normal_environment(theirs["environment"])
    if own_choice:
        for name in ("HABANA_VISIBLE_MODULES", "HLS_MODULE_ID"):
            environment.pop(name, None)
    found = [
        f"{name}: theirs {value!r}, ours {plan['environment'].get(name)!r}"
        for name, value in environment.items()
        if plan["environment"].get(name) != value
    ]
    # Processes of one node talk over loopback here, whatever the script takes (test_container.py).
    found = [line for line in found if line.split(":")[0] not in NETWORK]
    if theirs["numactl"] and theirs["numactl"] != plan["cpu_binding"]:
        found.append(f"numactl: theirs {theirs['numactl']}, ours {plan['cpu_binding']}")
    their_options, our_options = vendor.options(theirs["arguments"]), vendor.options(plan["arguments"])
    for both in (their_options, our_options):
        # The vendor's scripts pass it for every model; ours only where a model needs it (plan_code.py).
        both.pop("--trust-remote-code", None)
        for name in ("--limit-mm-per-prompt", "--mm-processor-kwargs"):
            if both.get(name):
                both[name] = str(sorted(vendor.structured(str(both[name])).items()))
    if case["release"] == "direct":
        our_options = {name: value for name, value in our_options.items() if name in their_options}
        if case["name"].startswith("m122-"):
            found = [line for line in found if "VLLM_GRAPH_RESERVED_MEM" not in line]
    for name in sorted(set(their_options) | set(our_options)):
        theirs_value, ours_value = their_options.get(name, "absent"), our_options.get(name, "absent")
        if theirs_value != ours_value:
            found.append(f"{name}: theirs {theirs_value!r}, ours {ours_value!r}")
    return found


def test_what_cannot_work_is_refused_in_a_sentence() -> None:
    refused = {case["name"]: vendor.plan_case(case).get("refused", "") for case in of("reject")}
    assert {name: words for name, words in refused.items() if not words.endswith(".")} == {}


def test_every_case_is_within_what_its_release_knows() -> None:
    plans = {case["name"]: (vendor.release_of(case), vendor.plan_case(case)) for case in CASES}
    found = {name: problems(release, plan) for name, (release, plan) in plans.items() if "refused" not in plan}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
