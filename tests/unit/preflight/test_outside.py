"""What proxies of the site keep from a node: hubs, registries and keys are asked for before anything is changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from library import gaudi_preflight
from tests.unit.node.outside import AccountProxy, KeyServer, proxy, serving
from tests.unit.preflight.conftest import ModuleRun, Run
from tests.unit.preflight.test_contracts import ROOT, load
from tests.unit.preflight.test_modules import HERE, fetching, ids, plan, preflight
from tests.unit.preflight.test_templates import evaluate, results

HUB = "https://hub.example"


@pytest.fixture
def site() -> Iterator[tuple[str, AccountProxy]]:
    with proxy() as (address, seen):
        yield address, seen


def wrong(address: str) -> str:
    return address.replace("reader", "stranger")


def hubs(*addresses: str, endpoint: str = HUB) -> list[dict[str, str]]:
    """Hubs that are reached through these proxies."""
    return [
        {"name": f"hub{number}", "address": endpoint, "proxy": address, "option": "gaudi_https_proxy"}
        for number, address in enumerate(addresses)
    ]


def fetched(run: Run, root: Path, *, alone: bool = True, check: bool = True, **given: Any) -> ModuleRun:
    ran = run(gaudi_preflight, {**fetching(root), "alone": alone, **given}, HERE, check)
    assert "p%40ss" not in json.dumps(ran.result) and "p@ss" not in json.dumps(ran.result)
    return ran


@pytest.mark.parametrize("check", [True, False])
def test_a_proxy_that_denies_is_refused_before_weights_are_fetched_through_it(
    run: Run, tmp_path: Path, site: tuple[str, AccountProxy], check: bool
) -> None:
    ran = fetched(run, tmp_path, weights_hubs=hubs(wrong(site[0])), check=check)
    assert ids(ran) == ["weights_behind_proxy"]
    for part in ("(407)", "gaudi_https_proxy", "hub0"):
        assert part in ran["report"]


def test_a_node_that_another_may_supply_is_warned(run: Run, tmp_path: Path, site: tuple[str, AccountProxy]) -> None:
    ran = fetched(run, tmp_path, weights_hubs=hubs(wrong(site[0])), alone=False)
    assert ids(ran) == []
    assert [said for said in ran["findings"] if "(407)" in said]


def test_one_hub_that_may_be_asked_is_enough(run: Run, tmp_path: Path, site: tuple[str, AccountProxy]) -> None:
    for other in ("", "socks5://127.0.0.1:1", site[0]):
        with serving(KeyServer) as port:
            both = [*hubs(wrong(site[0])), *hubs(other, endpoint=f"http://hub.example:{port}")]
            assert ids(fetched(run, tmp_path, weights_hubs=both)) == []


def test_a_proxy_that_lets_other_hosts_through_is_named_with_the_host(
    run: Run, tmp_path: Path, site: tuple[str, AccountProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbids(handler: Any) -> None:
        handler.send_error(403, "Blocked category")

    monkeypatch.setattr(site[1].handler, "do_CONNECT", forbids)
    ran = fetched(run, tmp_path, weights_hubs=hubs(site[0]))
    assert ids(ran) == ["weights_behind_proxy"]
    for part in ("hub.example (403 Blocked category)", "gaudi_no_proxy"):
        assert part in ran["report"]
    # What may pass is no reason to end a run: the downloader tries again.
    monkeypatch.setattr(site[1].handler, "do_CONNECT", lambda handler: handler.send_error(503))
    assert ids(fetched(run, tmp_path, weights_hubs=hubs(site[0]))) == []


def test_nothing_is_asked_where_nothing_is_fetched(run: Run, tmp_path: Path, site: tuple[str, AccountProxy]) -> None:
    given = {"weights_hubs": hubs(wrong(site[0])), "alone": True}
    ran = run(gaudi_preflight, preflight(plans=[plan(tmp_path, 0)], **given), HERE)
    assert not [one for one in ids(ran) if "proxy" in one]
    fetched(run, tmp_path, weights_hubs=hubs(wrong(site[0])), access_valid=False)
    assert site[1].asked == []


def test_the_role_tells_how_each_hub_is_reached() -> None:
    (read,) = (task for task in load(ROOT / "roles/preflight/tasks/read.yml") if "gaudi_preflight" in task)
    sources = [
        {"name": "one", "endpoint": "https://me:secret@one.example/x", "token": "hidden"},
        {"name": "two", "endpoint": "http://two.example", "proxy": "http://own.example:1"},
        {"name": "three", "endpoint": "http://three.example", "proxy": ""},
        {"name": "four", "endpoint": "https://four.inside.example"},
    ]
    given = {"gaudi_https_proxy": "http://proxy.example:3128", "gaudi_no_proxy": ".inside.example"}
    given |= results("preflight", role_options={"wrong": []})
    asked = read["gaudi_preflight"]["weights_hubs"]
    found = evaluate("preflight", asked, preflight_weights_sources=sources, **given)
    assert [each["proxy"] for each in found] == ["http://proxy.example:3128", "http://own.example:1", "", ""]
    assert "secret" not in str(found) and "hidden" not in str(found)
    assert "gaudi_https_proxy" in found[0]["option"] and "two" in found[1]["option"]
    assert evaluate("preflight", asked, preflight_weights_sources="huggingface", **given) == []


@pytest.mark.parametrize("playbook", ["site.yml", "playbooks/serve.yml"])
def test_playbooks_pass_the_hubs_that_weights_are_fetched_from(playbook: str) -> None:
    (given,) = [
        task["vars"]["preflight_weights_sources"]
        for play in load(ROOT / playbook)
        for task in [*play.get("pre_tasks", []), *play.get("tasks", [])]
        if "preflight_weights_sources" in task.get("vars", {})
    ]
    default = load(ROOT / "roles/model_weights/defaults/main.yml")["model_weights_sources"]
    assert evaluate("preflight", given) == default
