"""Which entry of GRUB's menu boots next."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.gaudi.host import boot_menu
from ansible.module_utils.gaudi.host.boot_menu import MenuEntry
from hypothesis import given
from hypothesis import strategies as st

RECORDED = Path(__file__).parent / "recorded"
UUID = "0bd7f1ea-0000-4000-8000-000000000000"
NEW, OLD = "6.17.0-22-generic", "6.8.0-110-generic"
SUBMENU, OLD_ID = f"gnulinux-advanced-{UUID}", f"gnulinux-{OLD}-advanced-{UUID}"


def entry(title: str, identity: str, kernel: str, indent: str = "") -> str:
    head = f"{indent}menuentry '{title}' --class ubuntu --class os $menuentry_id_option '{identity}' {{\n"
    # A brace inside an entry's commands closes no entry.
    commands = f'{indent}\tif [ "${{grub_platform}}" = xen ]; then insmod xzio; fi\n'
    return f"{head}{commands}{indent}\tlinux\t/boot/vmlinuz-{kernel} root=UUID={UUID} ro quiet\n{indent}}}\n"


def config(default: str = "0", *kernels: str) -> str:
    """A grub.cfg as grub-mkconfig writes it for these kernels, the newest first, in form of Ubuntu's."""
    kernels = kernels or (NEW, OLD)
    header = (
        'if [ "${next_entry}" ] ; then\n   set default="${next_entry}"\n   set next_entry=\n   save_env next_entry\n'
        f'else\n   set default="{default}"\nfi\nfunction savedefault {{\n  save_env saved_entry\n}}\n'
    )
    advanced = "".join(
        entry(f"Ubuntu, with Linux {kernel}", f"gnulinux-{kernel}-advanced-{UUID}", kernel, "\t")
        + entry(f"Ubuntu, with Linux {kernel} (recovery mode)", f"gnulinux-{kernel}-recovery-{UUID}", kernel, "\t")
        for kernel in kernels
    )
    return (
        f"{header}{entry('Ubuntu', f'gnulinux-simple-{UUID}', kernels[0])}"
        f"submenu 'Advanced options for Ubuntu' $menuentry_id_option '{SUBMENU}' {{\n{advanced}}}\n"
        "menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {\n\tfwsetup\n}\n"
        'menuentry "Somebody\'s own > kernel" --id own {\n\tlinux /vmlinuz root=LABEL=x\n}\n'
    )


def booted(default: str, block: str = "") -> MenuEntry:
    text = config(default)
    found = boot_menu.chosen_entry(
        boot_menu.parse_menu(text), boot_menu.default_of(text, boot_menu.parse_environment(block))
    )
    assert found is not None
    return found


@pytest.mark.report("A15")
@pytest.mark.parametrize(
    ("default", "kernel"),
    [
        ("0", NEW),
        ("1", NEW),
        ("1>2", OLD),
        ("1>3", OLD),
        (f"1>{OLD_ID}", OLD),
        # What an owner of Gaudi 3 cards wrote for 1.24.0, which does not build on 6.17.
        (f"{SUBMENU}>{OLD_ID}", OLD),
        (f"Advanced options for Ubuntu>Ubuntu, with Linux {OLD}", OLD),
        # GRUB takes the first entry where there is no such one, also where the submenu is left out.
        ("9", NEW),
        (OLD_ID, NEW),
        (f"{SUBMENU}>gnulinux-5.4.0-1-generic-advanced-{UUID}", NEW),
        ("${saved_entry}", NEW),
        ("", NEW),
    ],
)
def test_the_default_of_the_menu_is_the_kernel_that_boots(default: str, kernel: str) -> None:
    assert booted(default).release == kernel


def test_a_pinned_kernel_is_the_one_that_an_owner_saw_running() -> None:
    line = (RECORDED / "gaudi3/proc_cmdline.txt").read_text()
    image = line.split()[0].partition("=")[2]
    assert booted(f"{SUBMENU}>{OLD_ID}").kernel == image
    assert booted("0").kernel != image


@pytest.mark.parametrize(
    ("variables", "default", "kernel"),
    [
        ({"saved_entry": f"{SUBMENU}>{OLD_ID}"}, "${saved_entry}", OLD),
        ({"saved_entry": "1>2"}, "0", NEW),
        # grub-reboot: once, whatever the default is.
        ({"next_entry": "1>2"}, "0", OLD),
        ({"next_entry": "1>2", "saved_entry": "0"}, "${saved_entry}", OLD),
        ({"next_entry": "", "saved_entry": "1>2"}, "${saved_entry}", OLD),
    ],
)
def test_the_environment_block_decides_where_grub_reads_it(
    variables: dict[str, str], default: str, kernel: str
) -> None:
    block = "# GRUB Environment Block\n" + "".join(f"{name}={value}\n" for name, value in variables.items())
    assert booted(default, block + "#" * (1024 - len(block))).release == kernel
    # Without its first line GRUB says "invalid environment block" and reads nothing of it.
    assert booted(default, block[2:]).release == NEW


def test_titles_with_quotes_and_separators_are_found() -> None:
    assert booted("Somebody's own >> kernel").kernel == "/vmlinuz"
    assert booted("own").kernel == "/vmlinuz"
    assert booted("uefi-firmware").kernel == ""


def test_the_recorded_menu_of_debian() -> None:
    text = (RECORDED / "debian12/grub.cfg").read_text()
    entries = boot_menu.parse_menu(text)
    assert [(one.title, len(one.entries)) for one in entries] == [
        ("Debian GNU/Linux", 0),
        ("Advanced options for Debian GNU/Linux", 2),
    ]
    found = boot_menu.chosen_entry(entries, boot_menu.default_of(text, {}))
    assert found is not None
    assert found.release == "6.1.0-56-cloud-amd64"


def test_the_recorded_menu_of_two_kernels() -> None:
    entries = boot_menu.parse_menu((RECORDED / "debian12/grub_two_kernels.cfg").read_text())
    for default, kernel in (("0", "56"), ("1", "56"), ("1>2", "55"), ("1>3", "55")):
        found = boot_menu.chosen_entry(entries, default)
        assert found is not None
        assert found.release == f"6.1.0-{kernel}-cloud-amd64"
    path = boot_menu.path_to(entries, "6.1.0-55-cloud-amd64")
    found = boot_menu.chosen_entry(entries, path)
    assert found is not None
    assert found.title == "Debian GNU/Linux, with Linux 6.1.0-55-cloud-amd64"


@pytest.mark.parametrize("kernel", [NEW, OLD])
def test_a_path_to_a_kernel_boots_it_also_after_a_newer_one_comes(kernel: str) -> None:
    path = boot_menu.path_to(boot_menu.parse_menu(config()), kernel)
    assert path == f"{SUBMENU}>gnulinux-{kernel}-advanced-{UUID}"
    later = boot_menu.parse_menu(config("0", "7.0.0-1-generic", NEW, OLD))
    found = boot_menu.chosen_entry(later, path)
    assert found is not None
    assert found.release == kernel


@pytest.mark.parametrize("title", ["x$(touch /tmp/x)", "x`id`", 'a "b', "a\\\\b"])
def test_an_entry_that_a_shell_would_evaluate_is_no_path(title: str) -> None:
    """update-grub has a shell read the file that names the path. Such an entry is of another program's script."""
    linux = "\tlinux /boot/vmlinuz-6.8.0-1-generic\n"
    foreign = f"menuentry '{title}' {{\n{linux}}}\n"
    assert boot_menu.path_to(boot_menu.parse_menu(foreign), "6.8.0-1-generic") == ""
    own = f"menuentry 'Debian' $menuentry_id_option 'own' {{\n{linux}}}\n"
    assert boot_menu.path_to(boot_menu.parse_menu(foreign + own), "6.8.0-1-generic") == "own"


def test_submenus_without_an_end_are_read_up_to_a_depth() -> None:
    assert boot_menu.parse_menu("submenu 'a' {\n" * 5000)[0].submenu


def test_a_kernel_without_an_entry_has_no_path() -> None:
    assert boot_menu.path_to(boot_menu.parse_menu(config()), "6.8.0-45-generic") == ""


@pytest.mark.parametrize(
    ("drop_ins", "saved", "expected"),
    [
        ([], "", ("0", "")),
        (["GRUB_DEFAULT=0"], "", ("0", "/etc/default/grub.d/0.cfg:1")),
        (["GRUB_DEFAULT=0", '# ours\nGRUB_DEFAULT="1>2"'], "", ("1>2", "/etc/default/grub.d/1.cfg:2")),
        (["GRUB_DEFAULT=saved"], "1>2", ("1>2", "/etc/default/grub.d/0.cfg:1")),
        (["GRUB_DEFAULT=saved"], "", ("0", "/etc/default/grub.d/0.cfg:1")),
        (["GRUB_DEFAULT="], "", ("0", "")),
        (['GRUB_DEFAULT="$(newest)"'], "", None),
    ],
)
def test_the_files_say_what_the_next_configuration_chooses(
    drop_ins: list[str], saved: str, expected: tuple[str, str] | None
) -> None:
    files = [(f"/etc/default/grub.d/{number}.cfg", f"{text}\n") for number, text in enumerate(drop_ins)]
    assert boot_menu.of_files(files, {"saved_entry": saved} if saved else {}) == expected


def test_one_entry_of_grubby_is_found_by_number_and_title() -> None:
    listing = (RECORDED / "alma9/grubby_info_all.txt").read_text()
    image = boot_menu.of_grubby(listing, "0")
    assert image.startswith("/boot/vmlinuz-")
    assert boot_menu.of_grubby(listing, "99") == ""
    assert boot_menu.of_grubby(listing, "") == ""


@given(st.text(alphabet="menuentry submenu'\"{}>\n$0-id", max_size=300), st.text(max_size=20))
def test_any_configuration_is_read(text: str, default: str) -> None:
    entries = boot_menu.parse_menu(text)
    found = boot_menu.chosen_entry(entries, boot_menu.default_of(text, {"next_entry": default}))
    assert found is None or not found.submenu
