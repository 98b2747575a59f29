"""Tell from DKMS's make.log why the driver's modules were not built.

The log goes on over attempts; the last one counts. Sources of the patterns: the vendor's script as an owner of eight
Gaudi 2 on Debian 12 published it beside his logs (richard-rhino/gaudi2-setup), a public troubleshooting page of a host
with 1.24.0 on kernel 6.17, and the messages of make, gcc 9 to 14 and Kbuild under LC_ALL=C.
"""

from __future__ import annotations

import re

from ..base.printable import printable
from ..base.refusal import Refusal
from ..preflight import versions

# DKMS begins each attempt with such a line; newer ones have their version in it.
# Commands in sentences have the kernel: nothing that a shell would read as more than one word.
_ATTEMPT = re.compile(
    r"^DKMS (?:\([^()\s]{1,40}\) )?\S*make\.log for \S+ for kernel (?P<kernel>\w[\w.+~-]{0,99})", re.MULTILINE
)
# A part of such a log, without that line.
_PART = re.compile(
    r"^make(?:\[\d+\])?: Entering directory '/(?:var/lib/dkms|usr/src)/habanalabs|generate_flags\.sh: "
    r"|/(?:var/lib/dkms/habanalabs/[^\s:]+/build|usr/src/habanalabs-[^\s:/]+)/[^\s:]+\.[ch]:\d",
    re.MULTILINE,
)
# The first error of the compiler or of make, with its place.
_ERROR = re.compile(r"^(?P<place>[^\s:]+:\d+)(?::\d+)?: (?:fatal )?error: (?P<what>[^\n]{1,200})", re.MULTILINE)

_NO_SPACE = re.compile(r"No space left on device")
_KILLED = re.compile(r"(?:fatal error|internal compiler error): Killed|Killed signal terminated program")
_PROGRAMS = "gcc|g\\+\\+|cc|cc1|clang|ld|as|ar|nm|objcopy|make|flex|bison|bc|perl|objtool|pahole"
_TOOL = rf"(?:[\w+.-]+-)?(?:{_PROGRAMS})(?:-[0-9.]+)?"
# gcc's quotes, in ASCII and in a UTF-8 locale.
_OPEN, _CLOSE = "['`\u2018\u201c\"]", "['\u2019\u201d\"]"
_NO_TOOL = re.compile(
    rf"(?:^|[\s:/])(?P<tool>{_TOOL}): (?:command )?not found|"
    rf"make(?:\[\d+\])?: (?P<make>{_TOOL}): (?:Command not found|No such file or directory)|"
    rf"(?:error trying to exec|cannot execute) {_OPEN}(?P<exec>[\w+./-]+){_CLOSE}",
    re.MULTILINE | re.IGNORECASE,
)
_OPTION = re.compile(rf"unrecognized command[- ]line option {_OPEN}(?P<option>-[\w=+.,-]+){_CLOSE}")
_BUILT_BY = re.compile(r"The kernel was built by: *(?P<compiler>[^\n]{1,120})")
_NO_HEADERS = re.compile(
    r"/lib/modules/\S+/build/?: No such file or directory|No rule to make target '?(?:modules|/lib/modules/\S+/build)|"
    r"Kernel configuration is invalid|(?:auto\.conf|autoconf\.h)'? (?:are|is) missing|"
    r"(?:generated/\w+|linux/(?:kernel|module|version|kconfig|init|compiler-version))\.h: No such file or directory|"
    r"scripts/(?:Makefile\.\w+|basic/fixdep|mod/modpost|genksyms/genksyms): (?:No such file or directory|not found)|"
    r"'KERNELDIR' not defined"
)
# The script joins the headers' directory and Debian's absolute path to the common headers.
_JOINED = re.compile(r"grep: \S+/build/*/usr/src/(?P<headers>linux-headers-\S+?)/\S*: No such file or directory")
# It gives up on a structure of the kernel: it found none, or one that it does not know.
_SCRIPT = re.compile(r"generate_flags\.sh: (?P<what>[^\n]{1,200})")
_FOUND_NOTHING = re.compile(r"generate_flags\.sh: unexpected [^\n]*: *''")
# The driver's own copy of what the kernel has; as it comes where each probe of the kernel fails.
_AGAIN = re.compile(
    r"error: (?:redefinition of|conflicting types for|static declaration of [^\n]{1,80} follows non-static|"
    r"redeclaration of|nested redefinition of)"
)
_COMMON = re.compile(r"/usr/src/(?P<headers>linux-headers-[^/\s]+-common)/")
_WARNINGS = re.compile(r"(?:cc1: )?all warnings being treated as errors|\[-Werror[=\]]")
# What changes in the kernel do to a driver.
_CHANGED = re.compile(
    r"error: (?:implicit declaration of|too (?:few|many) arguments|[^\n]{1,80} has no member named|"
    r"passing argument|initialization of|unknown type name|invalid use of undefined type|[^\n]{1,80} undeclared|"
    # Linux 6.13: MODULE_IMPORT_NS takes a string.
    r"expected [^\n]{1,40} before [^\n]DMA_BUF|"
    r"incompatible type|[^\n]{1,80} redefined|dereferencing pointer to incomplete|storage size of)|"
    r"(?<!generated)/[\w-]+\.h: No such file or directory"
)


def is_make_log(text: str) -> bool:
    """Whether a text is a make.log of the driver, or a part of one."""
    return bool(_ATTEMPT.search(text) or _PART.search(text))


def last_attempt(log: str) -> tuple[str, str]:
    """Return the kernel of the last attempt in a log, "" if it does not say it, and what that attempt printed."""
    attempts = list(_ATTEMPT.finditer(log))
    return (attempts[-1]["kernel"], log[attempts[-1].start() :]) if attempts else ("", log)


def cause(log: str, kernel: str, version: str = "", newest: str = "") -> Refusal | None:
    """Return why a build failed; None if the log does not show it.

    log: one attempt. kernel: it was built for. version: of the driver, as packages have it. newest: the newest kernel
    that the release was tested with on this system, "" if that is not known.
    """
    for find in (_of_resources, _of_tools, _of_headers):
        found = find(log, kernel)
        if found:
            return found
    return _of_layout(log, kernel, version, newest) or _of_kernel(log, kernel, newest)


def _begin(kernel: str) -> str:
    return f"The driver does not build on kernel {kernel}"


def _of_resources(log: str, kernel: str) -> Refusal | None:
    if _NO_SPACE.search(log):
        return Refusal(
            "driver_build_no_space",
            f"{_begin(kernel)}: a file system is full (/var/lib/dkms, /tmp).",
            "Free disk space (df -h), then run again.",
        )
    if _KILLED.search(log):
        return Refusal(
            "driver_build_killed",
            f"{_begin(kernel)}: the compiler was killed, as by a lack of memory; DKMS runs as many at once as there "
            "are processors.",
            "Look at dmesg | grep -i oom, free memory (hugepages are not free memory), then run again.",
        )
    return None


def _of_tools(log: str, kernel: str) -> Refusal | None:
    if match := _OPTION.search(log):
        by = _BUILT_BY.search(log)
        built = f" (it was built by {printable(by['compiler'].strip())})" if by else ""
        return Refusal(
            "compiler_too_old",
            f"{_begin(kernel)}: the node's compiler does not know {printable(match['option'])}, an option of this "
            f"kernel{built}.",
            "A compiler of the kernel's version is needed: install that gcc (Ubuntu 22.04 with a HWE kernel: gcc-12), "
            "then run again.",
        )
    if match := _NO_TOOL.search(log):
        tool = next(group for group in match.groups() if group)
        return Refusal(
            "no_compiler",
            f"{_begin(kernel)}: {printable(tool)} is not on the node.",
            "DKMS needs the kernel's compiler and make: install gcc and make (Debian, Ubuntu: build-essential), or the "
            "package of this program, then run again.",
        )
    return None


def _of_headers(log: str, kernel: str) -> Refusal | None:
    match = _NO_HEADERS.search(log)
    if match is None:
        return None
    return Refusal(
        "kernel_headers_incomplete",
        f"{_begin(kernel)}: its headers are missing or incomplete ({printable(match.group().strip())}).",
        f"They are needed for exactly this kernel: run apt-get install --reinstall linux-headers-{kernel} (RHEL: dnf "
        f"reinstall kernel-devel-{kernel}), then run again.",
    )


def _of_layout(log: str, kernel: str, version: str, newest: str) -> Refusal | None:
    """Debian's headers, whose Makefile includes the common ones by an absolute path; the script expects a relative."""
    joined, common = _JOINED.search(log), _COMMON.search(log)
    nothing = _FOUND_NOTHING.search(log)
    again = _AGAIN.search(log) if common and not _newer(kernel, newest) else None
    found = joined or nothing or again
    if found is None:
        return None
    headers = (joined or common or {"headers": "linux-headers-VERSION-common"})["headers"]
    return Refusal(
        "headers_layout_misread",
        f"{_begin(kernel)}: the vendor's script compat/scripts/generate_flags.sh takes the absolute path with which "
        f"Debian's headers include /usr/src/{headers} for a relative one. So it finds nothing that this kernel has, "
        f"and the driver brings its own ({printable(found.group().strip())}).",
        "Where the included path begins with a slash, KERNEL_HEADERS_PATH has to be that path alone: correct it in "
        f"/usr/src/habanalabs-{version or 'VERSION'}/compat/scripts/generate_flags.sh, and again whenever "
        "habanalabs-dkms is installed. Then run again, which builds the modules and finishes the packages.",
    )


def _of_kernel(log: str, kernel: str, newest: str) -> Refusal | None:
    warnings, error = _WARNINGS.search(log), _ERROR.search(log)
    changed = _CHANGED.search(log) or _AGAIN.search(log) or _SCRIPT.search(log)
    first = changed or warnings
    if first is None:
        return None
    what = f"{error['place']}: {error['what']}" if error else first.group()
    why = ", and warnings count as errors (-Werror)" if warnings else ""
    tested = f"{newest}, the newest that the release was tested with," if newest else "of the release's list"
    differs = "is newer than" if _newer(kernel, newest) or not newest else "differs from"
    return Refusal(
        "kernel_too_new",
        f"{_begin(kernel)}: it {differs} those that the release was made for; interfaces that the driver uses "
        f"have changed there{why} ({printable(what.strip())}).",
        f"A kernel {tested} is required (docs/compatibility.md). Install it with its headers and boot it "
        "(gaudi_driver_kernel does), or choose a release for this kernel.",
    )


def suspect(kernel: str, newest: str) -> str:
    """Return which kernel may be why a build failed whose log is not known; "" if none. newest: as in cause()."""
    if not newest:
        return "a kernel that is newer or older than those that the release was made for (docs/compatibility.md)"
    older = f"a kernel that is newer than {newest}, the newest that the release was tested with (docs/compatibility.md)"
    return older if _newer(kernel, newest) else ""


def _newer(kernel: str, newest: str) -> bool:
    one, other = versions.read(kernel), versions.read(newest)
    return one is not None and other is not None and versions.compare(one, other) > 0
