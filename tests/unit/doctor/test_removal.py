"""What names a site, its people and its hardware is in no record; relations stay visible."""

from __future__ import annotations

import ipaddress
import itertools
import re
import string

import pytest
from ansible.module_utils.gaudi.doctor.removal import names_of, remove, report, too_many
from hypothesis import given as examples
from hypothesis import strategies as st

LETTERS = string.ascii_letters + string.digits
# Words that no placeholder and no usual word is part of.
NAME = st.from_regex(r"q[a-z]{3,8}[0-9]{2}", fullmatch=True)
DOMAIN = st.from_regex(r"q[a-z]{3,8}\.zone", fullmatch=True)
SERIAL = st.from_regex(r"AM[0-9]{8}", fullmatch=True)
# Not of the form of a card's, which is known without words around it.
ANY_SERIAL = st.from_regex(r"[1-9][A-Z]{3}[0-9]{4}", fullmatch=True)
UUID = st.from_regex(r"01P[0-9]-HL[23]0[89]0A0-1[58]-[A-Z][A-Z0-9]{5}(-[0-9]{2}){3}", fullmatch=True)
V4 = st.ip_addresses(v=4).filter(lambda address: not address.is_loopback and not address.is_unspecified)
V6 = st.ip_addresses(v=6).filter(lambda address: not address.is_loopback and not address.is_unspecified)
MAC = st.from_regex(r"[0-9a-e][0-9a-f](:[0-9a-f]{2}){5}", fullmatch=True).filter(lambda mac: set(mac) - set("0:"))
AROUND = st.sampled_from((" ", "\n", '"', "'", "=", ",", "/", "(", ")", "@", "[", "]", "|", "\t", "<", ">"))


def one(text: str, **names: list[str]) -> str:
    return remove([text], [names]).texts[0]


@examples(
    names=st.lists(NAME, min_size=1, max_size=3, unique=True),
    users=st.lists(NAME, max_size=2),
    domain=DOMAIN,
    serials=st.lists(SERIAL, max_size=3),
    uuids=st.lists(UUID, max_size=3),
    addresses=st.lists(V4 | V6, max_size=3),
    macs=st.lists(MAC, max_size=2),
    draw=st.data(),
)
def test_no_given_value_survives_in_any_text(  # type: ignore[no-untyped-def]
    names, users, domain, serials, uuids, addresses, macs, draw
) -> None:
    full = [f"{names[0]}.{domain}"]
    values = [*names, *users, domain, *full, *serials, *uuids, *map(str, addresses), *macs]
    words = draw.draw(st.lists(st.sampled_from([*values, *(value.upper() for value in values)]), min_size=1))
    text = "".join(f"{draw.draw(AROUND)}{word}{draw.draw(AROUND)}" for word in words)
    node = {"host": [*names, *full], "domain": [domain], "user": users, "serial": serials, "uuid": uuids}
    shown = remove([text, text.lower()], [node])
    low = "\n".join(shown.texts).lower()
    assert [value for value in values if re.search(rf"(?<![0-9a-z]){re.escape(value.lower())}(?![0-9a-z])", low)] == []
    assert [number for number in (*serials, *uuids) if number.lower() in low] == []
    assert sum(row["times"] for row in shown.table) >= len(words)


HIDDEN = {"host": ["qwestern01"], "serial": ["AM50016138"]}


@examples(st.lists(st.tuples(st.integers(0, 60), st.integers(12, 20)), max_size=4), st.sampled_from(("serial", "user")))
def test_no_part_of_a_value_stays_where_another_node_names_what_overlaps_it(
    places: list[tuple[int, int]], kind: str
) -> None:
    text = "Static hostname: qwestern01 serial: AM50016138 at 10.20.30.40, 00:1b:2a:3d:4e:5f"
    claims = [text[start : start + length].strip() for start, length in places]
    shown = remove([text], [HIDDEN, {kind: claims}]).texts[0].lower()
    pieces = {
        value[at : at + 5]
        for value in ("qwestern01", "am50016138", "10.20.30.40", "00:1b:2a:3d:4e:5f")
        for at in range(len(value) - 4)
    }
    assert [piece for piece in pieces if piece in shown] == []


@pytest.mark.parametrize("glued", ["qwestern01AM50016138", "AM50016138qwestern01", "qwestern01AM50016138qwestern01"])
def test_a_name_that_is_glued_to_a_number_is_removed(glued: str) -> None:
    shown = remove([f"card {glued}"], [{"host": ["qwestern01"], "serial": ["AM50016138"]}]).texts[0]
    assert "qwestern" not in shown.lower()
    assert "50016138" not in shown


@examples(st.lists(st.tuples(V4 | V6, st.text(" ,;=\"'()[]|", min_size=1)), min_size=1))
def test_addresses_are_found_that_nobody_gave(pairs: list[tuple[ipaddress.IPv4Address, str]]) -> None:
    shown = one("".join(f"{around}{address}{around}" for address, around in pairs))
    assert [str(address) for address, _ in pairs if str(address) in re.split(r"[ ,;=\"'()\[\]|]", shown)] == []


# What may stand around a value of each kind, as tools, people and other systems write it.
FORMS = {
    "user": (
        *("/home/{0}/x", "C:\\Users\\{0}\\x", "c:\\\\Users\\\\{0}", "D:/Users/{0}", "/mnt/c/Users/{0}/x", "uid=5({0})"),
        *("LOGNAME={0}", '"ansible_user": "{0}"', "opened for user {0} by", "{0}@rack:~$", "{0}@mail.q.zone"),
    ),
    "serial": (
        *("Serial Number : {0}", "serial {0}", "the serial number is {0}.", "S/N: {0}", "(SN {0})", "serial no. {0}"),
        *("Serial#: {0}", "service tag {0}", "serials {0}, {0}", "ata-DISK_{0}-part2", '"serial": "{0}"'),
    ),
    "mac": ("{0}", "ether {0} txq", "enx{1}", "mac={1}", '"mac_address": "{1}"', "({2})", "{2},", "{3}", "lladdr {0}"),
}


@examples(st.sampled_from([(kind, form) for kind, forms in FORMS.items() for form in forms]), st.data())
def test_no_form_of_a_value_survives_that_nobody_gave(case: tuple[str, str], data: st.DataObject) -> None:
    kind, form = case
    value = data.draw({"user": NAME, "serial": ANY_SERIAL, "mac": MAC}[kind])
    digits = value.replace(":", "")
    forms = [value, digits, ".".join(digits[at : at + 4] for at in (0, 4, 8)), value.replace(":", "-")]
    shown = one(f"x {form.format(*forms)} y\nthen {value}, {value.upper()}\n").lower()
    assert [each for each in forms if each.lower() in shown] == []
    assert f"{kind}-1" in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("link/ether 3c:ec:ef:12:34:56 brd ff:ff:ff:ff:ff:ff", "link/ether mac-1 brd ff:ff:ff:ff:ff:ff"),
        ("node_guid: b8:59:9f:03:00:aa:bb:cc", "node_guid: mac-1"),
        ("inet 10.1.2.3/24 scope", "inet address-1/24 scope"),
        ("from 10.1.2.3:8000 to 10.1.2.4, 10.1.2.3.", "from address-1:8000 to address-2, address-1."),
        ("[fe80::1%eth0] and ::ffff:10.1.2.3", "[address-1%eth0] and address-2"),
        ("Serial Number                   : AM50016138", "Serial Number                   : serial-1"),
        ('"serial": "AM50016138", "x": 1', '"serial": "serial-1", "x": 1'),
        ("disk eui.0025385b71b0a1b2 of 0025385b71b0a1b2", "disk eui.serial-1 of serial-1"),
        ("AIP UUID : 01P0-HL2080A0-15-TF8A81-09-07-06", "AIP UUID : uuid-1"),
        ("root 3b1c2f4e-aaaa-bbbb-cccc-0123456789ab", "root uuid-1"),
        ("/dev/sda1 9G /home/carol/data", "/dev/sda1 9G /home/user-1/data"),
        ("/Users/carol/serving and carol", "/Users/user-1/serving and user-1"),
        ("carol@mail.corp.zone wrote", "user-1@host-2 wrote"),
        ("https://(taken out)@nexus.corp.zone/x", "https://(taken out)@host-2/x"),
        (
            "ssh: connect to host rack7 port 22; Could not resolve host: rack8",
            "ssh: connect to host host-2 port 22; Could not resolve host: host-3",
        ),
        ("S/N: X7Y8Z9, Service Tag: 7XJ3K92", "S/N: serial-1, Service Tag: serial-2"),
        ("http://nexus.corp.zone:8081/pypi", "http://host-2:8081/pypi"),
        ("image registry.corp.zone:5000/gaudi/vllm:1.24.1 here", "image host-2:5000/gaudi/vllm:1.24.1 here"),
        ("port 3cec.ef12.3456 is 3c:ec:ef:12:34:56 and 3C-EC-EF-12-34-56", "port mac-1 is mac-1 and mac-1"),
        ("node_guid b859:9f03:00aa:bbcc, enx3cecef123456", "node_guid mac-1, enxmac-2"),
        ("MAC address 3cecef123456; guid 0xb8599f0300aabbcc", "MAC address mac-1; guid 0xmac-2"),
        ("C:\\Users\\Carol Smith\\x by Carol Smith", "C:\\Users\\user-1\\x by user-1"),
        ('"c:\\\\Users\\\\carol" and D:/Users/dave/x', '"c:\\\\Users\\\\user-1" and D:/Users/user-2/x'),
        ("carol@rack7:~/x$ hl-smi, [dave@rack8 ~]$", "user-1@host-2:~/x$ hl-smi, [user-2@host-3 ~]$"),
        ("uid=1000(carol) gid=1000(staff7) for user dave", "uid=1000(user-1) gid=1000(user-2) for user user-3"),
        ("LOGNAME=carol: Accepted publickey for dave", "LOGNAME=user-1: Accepted publickey for user-2"),
        ("Carol Q. Smith <carol@mail.corp.zone>", "user-1 <user-2@host-2>"),
        ("the card with serial AM50016138 failed", "the card with serial serial-1 failed"),
        (
            "serial number is X7Y8Z9, SN X7Y8ZA, asset tag 4711-A",
            "serial number is serial-1, SN serial-2, asset tag serial-3",
        ),
        ("serials X7Y8Z9, X7Y8ZA and X7Y8ZB; AM50016138", "serials serial-1, serial-2 and serial-3; serial-4"),
        ("nvme-SAMSUNG_MZQL2_S64GNE0R123456-part1", "nvme-SAMSUNG_MZQL2_serial-1-part1"),
        ("wwn-0x5000c500a1b2c3d4, iqn.1993-08.org.debian:01:ab12", "wwn-0xserial-1, iqn.1993-08.org.debian:serial-2"),
        ("UUID=1A2B-3C4D and qDxB7x-1f6c-8kMd-p0Xe-QwXz-5Tbn-a1B2c3", "UUID=uuid-1 and uuid-2"),
    ],
)
def test_what_no_node_gave_is_known_by_its_form(text: str, shown: str) -> None:
    assert one(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "0000:43:00.0 Processing accelerators [1200]: Habana Labs Ltd. Device [1da3:1020] (rev 01)",
        "hl-gaudi2-1.12.1-fw-46.0.5.0-sec-6",
        "hl-1.24.1-fw-62.6.2.0 (Oct 19 2026 - 01:19:50)",
        "listens at http://127.0.0.1:8000 and [::1]:8000, 0.0.0.0 and ::",
        "12:34:56 INFO std::bad_alloc at c10::Error",
        "vault.habana.ai/gaudi-docker/1.24.1/ubuntu22.04/x:latest from https://huggingface.co/Qwen",
        "Serial Number : N/A; 8250 serial: unavailable",
        "00:00:00:00:00:00 0000.0000.0000 guid 0000000000000000 RAX: 0000000000000000",
        "serial console ttyS0, serial 115200, Serial: 8250/16550 driver, 32 ports, in serial order of 12",
        "0000:43:00.0 1da3:1020 ext 2026.11.27 and 1.24.1.482",
        "git@github.com, a-list@lists.debian.org, user@1000.service, gaudi-job@fetch.a.service, x@sha256:0123",
        "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "Module ID: 0, CPLD 0x0000000d, 131072MiB, 350W, 18446744073709551615",
    ],
)
def test_what_tells_nothing_of_a_site_stays(text: str) -> None:
    assert one(text, host=["gaudi", "localhost"], user=["root", "ubuntu"], serial=["0", "000000"]) == text


def test_one_node_is_one_host_and_the_same_value_the_same_placeholder_everywhere() -> None:
    nodes = [
        {"host": ["blade7", "blade7.corp.zone"], "domain": ["corp.zone"], "serial": ["AM50016138"]},
        {"host": ["blade8"], "domain": ["corp.zone"], "user": ["carol"]},
    ]
    texts = ["Blade8 asks BLADE7.corp.zone for AM50016138", "blade7: AM50016138, proxy.corp.zone, corp.zone, carol"]
    shown = remove(texts, nodes)
    assert shown.texts == ["host-2 asks host-1 for serial-1", "host-1: serial-1, host-3, domain-1, user-1"]
    lines = report(shown)
    assert "host          4  host-1 (2), host-2 (1), host-3 (1)" in lines
    assert not any(secret in "\n".join(lines) for secret in ("blade", "corp", "AM5", "carol"))


def test_a_word_that_stays_is_named() -> None:
    shown = remove(["ubuntu on gaudi"], [{"user": ["ubuntu"], "host": ["gaudi"]}])
    assert shown.texts == ["ubuntu on gaudi"]
    assert report(shown)[-1].endswith(": gaudi, ubuntu")


def test_few_of_the_words_that_stay_are_named() -> None:
    last = report(remove([""], [{"user": [str(number) for number in range(1000)]}]))[-1]
    assert last.endswith(" and 900 more")


def test_what_a_node_names_is_bounded_and_may_be_anything() -> None:
    assert set(map(tuple, names_of("x").values())) == {()}
    found = names_of({"host": ["a\nb", 7, None, "", "x" * 300, "fine", *map(str, range(10_000))], "user": "root"})
    assert found["host"][0] == "fine"
    assert len(found["host"]) < 5000
    assert found["user"] == []
    assert too_many(found)
    assert not too_many({**found, "host": found["host"][:-1]})


def test_a_text_with_more_names_than_can_be_removed_is_left_out() -> None:
    """Each name is looked for in every text, which for tens of thousands of names would take hours."""
    many = "".join(f"/home/u{number}x/ " for number in range(5000))
    kept = remove(["/home/someone/ before", many, "of someone, after"], []).texts
    assert "someone" not in kept[0] + kept[2]
    assert "u7x" not in kept[1]
    assert kept[1].startswith("(")


def test_a_name_of_a_large_cluster_is_removed() -> None:
    assert one("qnode3999 asks QNODE0001", host=[f"qnode{number:04}" for number in range(4000)]) == "host-1 asks host-1"


def test_words_of_a_text_in_another_order_leave_it_in() -> None:
    words = ["device", "error", "failed", "firmware", "card", "load"]
    orders = itertools.chain.from_iterable(itertools.permutations(words, length) for length in range(2, 7))
    names = ["-".join(order) for order in orders]
    text = f"{' '.join(words)}: {' '.join(reversed(words))}"
    assert len(names) > 1900
    assert remove([text], [{}, {"user": names, "host": [f"{name}-card" for name in names]}], [0]).texts == [text]


def test_a_node_leaves_no_text_of_others_out_and_no_name_of_others_in() -> None:
    many = "".join(f"/home/u{number}x/ " for number in range(1999))
    evil = {
        "domain": [f"evil{number}.zone" for number in range(40)],
        "host": ["corp.zone"],
        "user": ["AM50016138"],
    }
    good = {"domain": ["corp.zone"], "serial": ["AM50016138"]}
    text = "/home/carol /home/dave on proxy.lab.corp.zone with xAM50016138y"
    shown = remove([many, text], [evil, good], [0, 1]).texts[1]
    assert [word for word in ("carol", "dave", "proxy", "lab", "corp", "AM5") if word in shown] == []
    assert shown.startswith("/home/user-")


def test_many_different_addresses_are_all_removed() -> None:
    text = "".join(f"10.{number // 250}.{number % 250}.7 " for number in range(50_000))
    kept = one(text).split()
    assert len(set(kept)) == len(kept) == 50_000
    assert not any(each.startswith("10.") for each in kept)


@pytest.mark.parametrize("piece", ["a:", "1.", "serial: ", "q0", "://", "/home/", "0a:", "a.b", "://a@"])
def test_a_long_text_of_half_a_pattern_ends_and_keeps_its_lines(piece: str) -> None:
    """A search whose time grows with the square of the length would not end while anybody waits."""
    node = {"host": [f"qhost{number}" for number in range(500)], "serial": [f"q{number:09}" for number in range(500)]}
    kept = one("\n".join([piece * 100_000] * 2), **node)
    assert kept.count("\n") == 1
