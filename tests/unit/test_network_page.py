"""What docs/network.md shows for a proxy's account, rendered by Ansible's own Jinja."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("roles/*/README.md"),
    *ROOT.glob("inventories/**/*.yml"),
)
SPECIAL = "p@ss/w%or:d#$ \\?x"
SHOWN = re.compile(r'"(?P<address>\w+://[^"\n]*\{\{ *(?P<name>\w+)[^"\n]*\burlencode\b[^"\n]*)"')


def test_each_recipe_for_a_password_in_an_address_yields_that_password() -> None:
    shown = [match for page in PAGES for match in SHOWN.finditer(page.read_text(encoding="utf-8"))]
    assert shown
    for match in shown:
        templar = Templar(loader=DataLoader(), variables={match["name"]: SPECIAL})
        address = urlsplit(str(templar.template(trust_as_template(match["address"]))))
        assert address.hostname == "proxy.example.com", match["address"]
        assert unquote(address.password or "") == SPECIAL
