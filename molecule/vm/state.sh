#!/bin/sh
# What tuning may touch, in a form two moments can be compared by: every file of the system's configuration
# with its hash, the boot entries, the running kernel, its arguments and settings, and the kernels that are there.
set -eu
find /etc /usr/local /var/lib/gaudi-serving /boot/grub/grub.cfg /boot/grub/grubenv -xdev -type f ! -name '*.bak' 2>/dev/null | sort | xargs sha256sum
find /etc /usr/local /var/lib/gaudi-serving -xdev '(' -type l -o -type d ')' 2>/dev/null | sort
tr ' ' '\n' </proc/cmdline
uname -r
ls /boot
dpkg-query --show 'linux-*'
sysctl kernel.numa_balancing vm.nr_hugepages
grep HugePages_Total /proc/meminfo
