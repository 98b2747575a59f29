"""GRUB's files: recorded ones of three distributions, and every turn of the shell they are written in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.gaudi.host import grub
from ansible.module_utils.gaudi.host.shell import TextPosition
from ansible.module_utils.gaudi.node.host import boot_loader
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.refused import refused

RECORDED = Path(__file__).with_name("recorded")


def recorded(system: str) -> list[tuple[str, str]]:
    """The files of one system under the names they have there, in the order GRUB reads them."""
    folder = RECORDED / system
    paths = [folder / "grub", *sorted(folder.glob("grub.d/*.cfg"))]
    return [(f"/etc/default/{path.relative_to(folder)}", path.read_text()) for path in paths]


def texts(text: str, name: str = grub.DEFAULT, path: str = "f") -> list[str]:
    return [word.text for word in grub.words(grub.evaluate([(path, text)]), name)]


def test_debian() -> None:
    line = grub.command_line(grub.evaluate(recorded("debian12")))
    assert [(word.text, str(word.place)) for word in line] == [
        ("console=ttyS0,115200", "/etc/default/grub.d/10-simulated.cfg:2"),
        ("net.ifnames=0", "/etc/default/grub.d/10-simulated.cfg:2"),
        ("quiet", "/etc/default/grub:9"),
        ("intel_idle.max_cstate=1", "/etc/default/grub.d/50-user.cfg:3"),
    ]


def test_what_debian_boots_is_what_the_files_say() -> None:
    entries = grub.parse_config((RECORDED / "debian12/grub.cfg").read_text())
    line = [word.text for word in grub.command_line(grub.evaluate(recorded("debian12")))]
    assert [entry.title for entry in entries] == [
        "Debian GNU/Linux",
        "Debian GNU/Linux, with Linux 6.1.0-56-cloud-amd64",
    ]
    for entry in entries:
        assert entry.kernel == "/boot/vmlinuz-6.1.0-56-cloud-amd64"
        # root=... and ro come from update-grub itself.
        assert list(entry.arguments[2:]) == line


def test_entries_of_others_do_not_count() -> None:
    text = (RECORDED / "debian12/grub.cfg").read_text()
    theirs = """### BEGIN /etc/grub.d/{script} ###
menuentry 'Another' $menuentry_id_option 'gnulinux-simple-1' {{
\tlinux\t/boot/vmlinuz-9 root=UUID=1 ro
}}
### END /etc/grub.d/{script} ###
"""
    others = "".join(theirs.format(script=script) for script in ("30_os-prober", "20_memtest86+", "40_custom"))
    kernels = [entry.kernel for entry in grub.parse_config(text)]
    assert [entry.kernel for entry in grub.parse_config(others + text + others)] == kernels
    assert len(grub.parse_config(text + theirs.format(script="10_linux_zfs"))) == len(kernels) + 1


@pytest.mark.report("H00")
def test_recovery_entries_are_known_in_every_language() -> None:
    text = (RECORDED / "debian12/grub.cfg").read_text()
    assert len(grub.parse_config(text.replace("(recovery mode)", "(Wiederherstellungsmodus)"))) == 2


def test_ubuntu_cloud_image_starts_the_line_anew() -> None:
    line = grub.command_line(grub.evaluate(recorded("ubuntu2404")))
    assert [word.text for word in line] == [
        "console=tty1",
        "console=ttyS0",
        "crashkernel=2G-4G:320M,4G-32G:512M,32G-64G:1024M,64G-128G:2048M,128G-:4096M",
    ]
    assert str(line[0].place) == "/etc/default/grub.d/50-cloudimg-settings.cfg:11"
    assert str(line[2].place) == "/etc/default/grub.d/kdump-tools.cfg:1"


def test_rhel() -> None:
    line = grub.command_line(grub.evaluate(recorded("rhel9")))
    assert line[0].text == "crashkernel=1G-4G:192M,4G-64G:256M,64G-:512M"
    assert line[-1].text == "quiet"
    assert {word.place.line for word in line} == {6}


def test_grubby() -> None:
    entries = grub.parse_grubby((RECORDED / "rhel9/grubby_info_all.txt").read_text())
    assert [entry.kernel for entry in entries] == [
        "/boot/vmlinuz-5.14.0-162.6.1.el9_1.x86_64",
        "/boot/vmlinuz-5.14.0-70.13.1.el9_0.x86_64",
    ]
    assert entries[0].arguments[0] == "ro"
    assert entries[1].arguments[-1] == "retbleed=stuff"


def test_grubby_with_tuned_keeps_its_reference() -> None:
    (entry,) = grub.parse_grubby((RECORDED / "alma9/grubby_info_all.txt").read_text())
    assert entry.arguments[-1] == "$tuned_params"


@pytest.mark.report("H04")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('GRUB_CMDLINE_LINUX_DEFAULT="a b"', ["a", "b"]),
        ("GRUB_CMDLINE_LINUX_DEFAULT='a  b'", ["a", "b"]),
        ("GRUB_CMDLINE_LINUX_DEFAULT=a", ["a"]),
        ("GRUB_CMDLINE_LINUX_DEFAULT=", []),
        ('  export GRUB_CMDLINE_LINUX_DEFAULT="a"  # why', ["a"]),
        ('GRUB_CMDLINE_LINUX_DEFAULT="a#b" # c', ["a#b"]),
        ('# GRUB_CMDLINE_LINUX_DEFAULT="x"\nGRUB_CMDLINE_LINUX_DEFAULT="a"', ["a"]),
        ('#GRUB_X="\nGRUB_CMDLINE_LINUX_DEFAULT=a', ["a"]),
        ('GRUB_CMDLINE_LINUX_DEFAULT="a \\\n b"', ["a", "b"]),
        ("GRUB_CMDLINE_LINUX_DEFAULT=a\\\nb", ["ab"]),
        ("\\\nGRUB_CMDLINE_LINUX_DEFAULT=a", ["a"]),
        ('GRUB_CMDLINE_LINUX_DEFAULT="a\n b"', ["a", "b"]),
        ('X=1; GRUB_CMDLINE_LINUX_DEFAULT="a"', ["a"]),
        ('X=r; GRUB_CMDLINE_LINUX_DEFAULT="${X}w $X"', ["rw", "r"]),
        ("X=r; GRUB_CMDLINE_LINUX_DEFAULT='$X'", ["$X"]),
        ('GRUB_CMDLINE_LINUX_DEFAULT="$NOBODY a"', ["a"]),
        ("GRUB_CMDLINE_LINUX_DEFAULT=\"a\"b'c'", ["abc"]),
        ('GRUB_CMDLINE_LINUX_DEFAULT="a \\"b c\\" d"', ["a", '"b c"', "d"]),
        ('GRUB_CMDLINE_LINUX_DEFAULT="a"\nGRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT b"', ["a", "b"]),
        ('GRUB_CMDLINE_LINUX_DEFAULT="a"\nGRUB_CMDLINE_LINUX_DEFAULT="b"', ["b"]),
        ("GRUB_DISTRIBUTOR=`( . /etc/os-release; echo '\"' ) || echo x`\nGRUB_CMDLINE_LINUX_DEFAULT=a", ["a"]),
        ("GRUB_DISTRIBUTOR=\"$(sed 's, r .*$,,g' /x)\"\nGRUB_CMDLINE_LINUX_DEFAULT=a", ["a"]),
        ('GRUB_CMDLINE_LINUX_DEFAULT="a \\$HOME"', ["a", "$HOME"]),
    ],
)
def test_the_shell_says_the_same(text: str, expected: list[str]) -> None:
    assert texts(text) == expected
    # The same question to a real shell, which GRUB asks.
    shell = subprocess.run(
        ["sh", "-c", f'{text}\nprintf %s "$GRUB_CMDLINE_LINUX_DEFAULT"'],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert [
        word.text for word in grub.words({"X": grub.evaluate([("f", f"X='{shell.stdout}'")])["X"]}, "X")
    ] == expected


def test_places_survive_references_across_files() -> None:
    files = [("one", 'A="x\n y"\nGRUB_CMDLINE_LINUX="$A z"'), ("two", '\nGRUB_CMDLINE_LINUX="w $GRUB_CMDLINE_LINUX"')]
    assert [(word.text, str(word.place)) for word in grub.words(grub.evaluate(files), "GRUB_CMDLINE_LINUX")] == [
        ("w", "two:2"),
        ("x", "one:1"),
        ("y", "one:2"),
        ("z", "one:3"),
    ]


@pytest.mark.report("H04")
@pytest.mark.report("H00")
@pytest.mark.parametrize(
    ("text", "id_", "named"),
    [
        ('A=1\nGRUB_CMDLINE_LINUX="quiet\n', "quote_never_closed", ("f:2:", '"')),
        ("GRUB_CMDLINE_LINUX='quiet", "quote_never_closed", ("f:1:", "'")),
        ("\n\nA=`date", "quote_never_closed", ("f:3:", "`")),
        ("A=$(date", "quote_never_closed", ("f:1:", "$(")),
        ('A="$(date"', "quote_never_closed", ("f:1:",)),
        ('GRUB_CMDLINE_LINUX ="quiet"', "space_before_equals", ("f:1:", "GRUB_CMDLINE_LINUX")),
    ],
)
def test_what_no_shell_reads_is_named_with_its_line(text: str, id_: str, named: tuple[str, ...]) -> None:
    with refused(id_, *named):
        grub.evaluate([("f", text)])


def test_our_drop_in_adds_to_what_is_there() -> None:
    ours = ("/etc/default/grub.d/zz-gaudi-serving.cfg", grub.render(["a=1", "b"]))
    line = grub.command_line(grub.evaluate([*recorded("ubuntu2404"), ours]))
    assert [word.text for word in line[-2:]] == ["a=1", "b"]
    assert {word.place.path for word in line[-2:]} == {ours[0]}
    assert line[0].text == "console=tty1"


@pytest.mark.parametrize(
    ("before", "words"),
    [
        pytest.param(
            [
                ("grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'),
                ("hetzner.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="nomodeset"\n'),
            ],
            ["nomodeset"],
            marks=pytest.mark.report("H01"),
        ),
        pytest.param([("grub", "GRUB_TIMEOUT=1\n")], [], marks=pytest.mark.report("H02")),
        pytest.param([], [], marks=pytest.mark.report("H02")),
    ],
)
def test_our_drop_in_adds_to_any_line(before: list[tuple[str, str]], words: list[str]) -> None:
    files = [*before, ("zz-gaudi-serving.cfg", grub.render(["a=1"]))]
    assert [word.text for word in grub.command_line(grub.evaluate(files))] == [*words, "a=1"]


@pytest.mark.report("H14")
def test_grubby_passes_over_entries_that_are_not_linux() -> None:
    listing = (RECORDED / "rhel9/grubby_info_all.txt").read_text()
    others = 'index=7\nnon linux entry\n\nindex=8\nkernel="/boot/vmlinuz-0-rescue-1f3a"\nargs="ro"\nroot="/dev/sda1"\n'
    kernels = [entry.kernel for entry in grub.parse_grubby(listing)]
    assert [entry.kernel for entry in grub.parse_grubby(listing + others)][: len(kernels)] == kernels


@pytest.mark.report("H03")
@pytest.mark.parametrize(
    ("behind", "line"),
    [
        ("# mine\nGRUB_CMDLINE_LINUX_DEFAULT=quiet\n", 2),
        ("GRUB_CMDLINE_LINUX_DEFAULT=\n", 1),
        ('GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT quiet"\n', None),
        ('A="$GRUB_CMDLINE_LINUX_DEFAULT"\nGRUB_CMDLINE_LINUX_DEFAULT=x\nGRUB_CMDLINE_LINUX_DEFAULT="$A y"\n', None),
        ("GRUB_CMDLINE_LINUX=quiet\n", None),
    ],
)
def test_a_file_that_forgets_ours_is_found(behind: str, line: int | None) -> None:
    files = [("/e/grub", "GRUB_CMDLINE_LINUX_DEFAULT=a\n"), ("/e/zz", grub.render(["b"])), ("/e/zzz", behind)]
    place = grub.taken_away(files, "/e/zz")
    assert place == (None if line is None else TextPosition("/e/zzz", line))
    # Whoever stands before ours takes nothing away.
    assert grub.taken_away([files[2], *files[:2]], "/e/zz") is None


@pytest.mark.report("H04")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('\nGRUB_CMDLINE_LINUX_DEFAULT="$(echo a)"\n', 2),
        ("GRUB_CMDLINE_LINUX=`echo a`\n", 1),
        ('GRUB_CMDLINE_LINUX_DEFAULT="${GRUB_CMDLINE_LINUX_DEFAULT%%a}"\n', 1),
        ("GRUB_CMDLINE_LINUX_DEFAULT+=' a'\n", 1),
        ("if true; then\nGRUB_CMDLINE_LINUX=a\nfi\n", 1),
        (". /etc/other\n", 1),
        ('GRUB_CMDLINE_LINUX_DEFAULT="${GRUB_CMDLINE_LINUX_DEFAULT} a"\n', None),
        ("GRUB_DISTRIBUTOR=`lsb_release -i -s 2> /dev/null || echo Debian`\n", None),
        ("# if it is so\n", None),
    ],
)
def test_what_only_a_shell_works_out_is_named(text: str, line: int | None) -> None:
    assert grub.unread([("/e/grub", text)]) == ([] if line is None else [TextPosition("/e/grub", line)])


@pytest.mark.parametrize("system", ["debian12", "rhel9"])
def test_files_of_the_distributions_are_read_wholly(system: str) -> None:
    assert grub.unread(boot_loader.grub_files(RECORDED / system / "grub")) == []


def test_our_drop_in_takes_its_place_among_the_others() -> None:
    files = [("/etc/default/grub", "a"), ("/etc/default/grub.d/50.cfg", "b"), ("/etc/default/grub.d/zzz.cfg", "c")]
    own = "/etc/default/grub.d/zz-gaudi-serving.cfg"
    there = grub.replaced(files, own, "ours")
    assert [text for _, text in there] == ["a", "b", "ours", "c"]
    assert [text for _, text in grub.replaced(there, own, "new")] == ["a", "b", "new", "c"]
    assert grub.replaced(there, own, None) == files


ARGUMENTS = st.lists(st.from_regex(r"[a-z][a-z_.]{0,8}(=[a-z0-9,.:]{1,8})?", fullmatch=True), max_size=6)


@given(ARGUMENTS, ARGUMENTS)
def test_rendered_and_read_again(before: list[str], ours: list[str]) -> None:
    files = [("grub", f'GRUB_CMDLINE_LINUX_DEFAULT="{" ".join(before)}"\n'), ("zz", grub.render(ours))]
    assert [word.text for word in grub.command_line(grub.evaluate(files))] == [*before, *ours]
