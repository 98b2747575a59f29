#!/bin/sh
# Everything about a node that setting it up would change, one line each: files with owner, mode and content, packages,
# units, kernel settings and arguments, processors' controls, the engine's images and containers. Left out: what a
# running system writes by itself.
set -eu
LC_ALL=C
export LC_ALL

find /boot /etc /home /opt /root /srv /usr/local /var/lib /data \
  \( -path /var/lib/systemd -o -path /var/lib/private -o -path /var/lib/sudo -o -path /var/lib/docker \
  -o -path /var/lib/containerd -o -path '*/.ansible' -o -path '*/.cache' \) -prune -o \
  -printf '%M %U:%G %p %l\n' 2>/dev/null | sort
find /boot /etc /home /opt /root /srv /usr/local /var/lib/dpkg /var/lib/gaudi-serving -type f -not -path '*/.ansible/*' \
  -exec sha256sum {} + 2>/dev/null | sort -k 2
dpkg-query --show
systemctl list-unit-files --no-legend --no-pager
sysctl vm.nr_hugepages
tr ' ' '\n' </proc/cmdline
# Not every kernel has these two: NUMA balancing needs NUMA, and virtual machines have no such controls.
sysctl -a 2>/dev/null | grep numa_balancing || true
grep . /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor /sys/devices/system/cpu/cpu*/cpuidle/state*/disable || true
if command -v docker >/dev/null; then
  docker ps --all --no-trunc --format '{{.ID}} {{.Names}}'
  docker images --all --no-trunc
fi
