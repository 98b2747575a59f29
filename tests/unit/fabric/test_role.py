"""What playbooks tell the role fabric_check, evaluated as Ansible does."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.unit.fabric.made import ROOT
from tests.unit.preflight.test_templates import evaluate, trusted


def test_a_page_of_all_nodes_says_when_it_was_made() -> None:
    """As people read a time; the verdicts have theirs with the zone."""
    (task,) = yaml.safe_load((ROOT / "roles/fabric_check/tasks/page.yml").read_text(encoding="utf-8"))
    content = evaluate("fabric_check", task["ansible.builtin.copy"]["content"], ansible_play_hosts=[], hostvars={})
    assert re.search(r"Made [0-9-]{10} [0-9]{2}:[0-9]{2} UTC\.", content)


PLAYBOOKS = ("site.yml", "playbooks/serve.yml", "playbooks/accept.yml", "playbooks/accept_pairs.yml")


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_a_playbook_has_hccl_demo_brought_as_all_others_do(name: str) -> None:
    """The site's pin counts before the release's, and what a build of the site is given is given to this one."""
    path = ROOT / name
    (play,) = [play for play in yaml.safe_load(path.read_text(encoding="utf-8")) if "vars_files" in play]
    known: dict[str, Any] = {**play.get("vars", {})}
    for file in play["vars_files"]:
        known |= yaml.safe_load((path.parent / file).read_text(encoding="utf-8"))
    planned = {"release": {"pins": {"hccl_demo": {"repository": "r", "commit": "old"}}}, "plans": []}
    site = {"serving_image_pins": {"hccl_demo": {"commit": "new"}}, "serving_image_https_proxy": "http://p:3128"}
    site |= {"serving_image_git_mirrors": {"https://github.com/": "http://m/"}, "serving_image_build_network": "host"}
    given = {**trusted(known), "preflight_serving": planned, "measuring_serving": planned}
    demo = {"repository": "r", "commit": "old", "mirrors": {}, "network": "default"}
    assert evaluate("fabric_check", "{{ measuring_demo }}", **given) == demo
    own = {"commit": "new", "mirrors": {"https://github.com/": "http://m/"}, "network": "host"}
    assert evaluate("fabric_check", "{{ measuring_demo }}", **given, **site) == {**demo, **own}
    proxies = evaluate("fabric_check", "{{ measuring_proxies }}", **given, **site)
    assert proxies == {"http_proxy": "", "https_proxy": "http://p:3128", "no_proxy": ""}
    text = path.read_text(encoding="utf-8") + "".join(map(str, known.values()))
    assert "{{ measuring_demo }}" in text
    assert "{{ measuring_proxies }}" in text
