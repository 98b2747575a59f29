"""Why DKMS did not build the driver, from what make.log has."""

from __future__ import annotations

import pytest
from ansible.module_utils.gaudi.driver.build_log import cause, last_attempt
from ansible.module_utils.gaudi.driver.troubles import recognised
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.driver.made import RECORDED

DEBIAN, HWE = "6.1.0-53-amd64", "6.17.0-22-generic"
VERSION = "1.24.1-482"
BUILD = f"/var/lib/dkms/habanalabs/{VERSION}/build"
COMMON = "/usr/src/linux-headers-6.1.0-53-common"
HEAD = f"DKMS make.log for habanalabs-{VERSION} for kernel {{0}} (x86_64)\nWed Sep  9 10:00:00 UTC 2026\n"
# The vendor's script as it joins both paths, and as it goes on from there (constructed from the published script).
JOINED = f"grep: /lib/modules/{DEBIAN}/build/{COMMON}//include/linux/export.h: No such file or directory\n"
NOTHING = "generate_flags.sh: unexpected arguments in struct bus_type::match: ''\n"
AGAIN = f"""\
In file included from {BUILD}/compat/include/compat.h:12,
{BUILD}/compat/include/linux/mm.h:40:21: error: redefinition of 'kvcalloc'
   40 | static inline void *kvcalloc(size_t n, size_t size, gfp_t flags)
{COMMON}/include/linux/slab.h:731:21: note: previous definition of 'kvcalloc' with type 'void *(size_t, size_t, gfp_t)'
"""
WERROR = f"""\
{BUILD}/drivers/accel/habanalabs/common/device.c:2201:9: error: implicit declaration of function 'del_timer_sync'
cc1: all warnings being treated as errors
make[3]: *** [scripts/Makefile.build:287: device.o] Error 1
"""
MACRO = f"""\
{BUILD}/drivers/accel/habanalabs/include/common.h:31: error: "MIN" redefined [-Werror]
cc1: all warnings being treated as errors
"""


@pytest.mark.parametrize(
    ("log", "kernel", "newest", "id_", "words"),
    [
        (JOINED, DEBIAN, "", "headers_layout_misread", "include /usr/src/linux-headers-6.1.0-53-common for a relative"),
        (NOTHING, DEBIAN, "", "headers_layout_misread", "struct bus_type::match"),
        (AGAIN, DEBIAN, "", "headers_layout_misread", "redefinition of"),
        (
            AGAIN,
            DEBIAN,
            "",
            "headers_layout_misread",
            f"/usr/src/habanalabs-{VERSION}/compat/scripts/generate_flags.sh",
        ),
        (
            f"{JOINED}{AGAIN}{WERROR}",
            DEBIAN,
            "",
            "headers_layout_misread",
            "KERNEL_HEADERS_PATH has to be that path alone",
        ),
        (WERROR, HWE, "6.8", "kernel_too_new", "it is newer than those that the release was made for"),
        (WERROR, HWE, "6.8", "kernel_too_new", "A kernel 6.8, the newest that the release was tested with"),
        (WERROR, HWE, "6.8", "kernel_too_new", "device.c:2201: implicit declaration of function 'del_timer_sync'"),
        (WERROR, HWE, "", "kernel_too_new", "A kernel of the release's list"),
        (MACRO, "6.8.0-45-generic", "6.8", "kernel_too_new", "it differs from those"),
        (
            "generate_flags.sh: unexpected arguments in struct bus_type::match: 'int (*match)(x)'\n",
            HWE,
            "6.8",
            "kernel_too_new",
            "match",
        ),
        (AGAIN, "6.12.9-amd64", "6.1", "kernel_too_new", "redefinition of 'kvcalloc'"),
        ("/bin/sh: 1: gcc-12: not found\n", DEBIAN, "", "no_compiler", ": gcc-12 is not on the node."),
        ("/bin/bash: line 1: make: command not found\n", DEBIAN, "", "no_compiler", ": make is not on the node."),
        (
            "make[1]: x86_64-linux-gnu-gcc: No such file or directory\n",
            DEBIAN,
            "",
            "no_compiler",
            "linux-gnu-gcc is not",
        ),
        (
            "gcc: fatal error: cannot execute 'cc1': execvp: No such file or directory\n",
            DEBIAN,
            "",
            "no_compiler",
            "cc1",
        ),
        (
            "warning: the compiler differs from the one used to build the kernel\n"
            "  The kernel was built by: x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0) 12.3.0\n"
            "gcc: error: unrecognized command-line option \u2018-ftrivial-auto-var-init=zero\u2019\n",
            *("6.5.0-45-generic", "", "compiler_too_old"),
            "-ftrivial-auto-var-init=zero, an option of this kernel (it was built by x86_64-linux-gnu-gcc-12",
        ),
        (
            f"make[1]: *** /lib/modules/{DEBIAN}/build: No such file or directory.  Stop.\n",
            *(DEBIAN, "", "kernel_headers_incomplete", f"linux-headers-{DEBIAN}"),
        ),
        ("ERROR: Kernel configuration is invalid.\n", HWE, "", "kernel_headers_incomplete", "configuration is invalid"),
        ("x.h:1:10: fatal error: generated/autoconf.h: No such file\n", HWE, "", None, ""),
        (
            "x.h:1:10: fatal error: generated/autoconf.h: No such file or directory\n",
            *(HWE, "", "kernel_headers_incomplete", "generated/autoconf.h"),
        ),
        (
            "ccX.s: fatal error: error writing: No space left on device\n",
            HWE,
            "",
            "driver_build_no_space",
            "df -h",
        ),
        ("gcc: fatal error: Killed signal terminated program cc1\n", HWE, "", "driver_build_killed", "lack of memory"),
        ("", DEBIAN, "", None, ""),
    ],
)
def test_the_cause_is_found_in_the_log(log: str, kernel: str, newest: str, id_: str | None, words: str) -> None:
    found = cause(log, kernel, VERSION, newest)
    assert (found and found.id) == id_
    if found:
        assert str(found).startswith(f"The driver does not build on kernel {kernel}: ")
        assert words in str(found)


def test_a_build_that_ended_well_has_no_cause() -> None:
    log = (RECORDED / "dkms_build_1.24.1_debian12.txt").read_text(encoding="utf-8")
    assert cause(log, DEBIAN, VERSION) is None
    assert recognised(log) is None


def test_the_last_attempt_counts() -> None:
    log = f"{HEAD.format(HWE)}{WERROR}{HEAD.format(DEBIAN)}{AGAIN}"
    kernel, attempt = last_attempt(log)
    assert (kernel, WERROR in attempt, AGAIN in attempt) == (DEBIAN, False, True)
    assert last_attempt(WERROR) == ("", WERROR)


def test_what_apt_printed_of_a_kernel_that_is_too_new_is_enough() -> None:
    found = recognised((RECORDED / "dkms_build_1.24.0_kernel_6.17.txt").read_text(encoding="utf-8"))
    assert found is not None
    assert found.id == "kernel_too_new"
    assert HWE in str(found)
    assert "-Werror" in str(found)


@given(st.text(max_size=300), st.text(max_size=20))
def test_any_log_is_read(log: str, kernel: str) -> None:
    found = cause(last_attempt(log)[1], kernel)
    assert found is None or str(found).endswith(".")
