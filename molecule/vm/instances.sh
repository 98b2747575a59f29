#!/bin/sh
# Two instances (they serve nothing, but are units of that name), one of which runs; and what the machine was before.
set -eu
cat >/etc/systemd/system/gaudi-serving.target <<'UNIT'
[Unit]
Description=All instances
[Install]
WantedBy=multi-user.target
UNIT
cat >/etc/systemd/system/vllm-probe.service <<'UNIT'
[Unit]
Description=Stands for an instance
PartOf=gaudi-serving.target
[Service]
Type=notify
NotifyAccess=all
ExecStart=/bin/sh -c 'systemd-notify --ready; exec sleep infinity'
ExecStop=/bin/sh -c 'cat /proc/sys/kernel/random/boot_id > /var/tmp/stopped; sync'
[Install]
WantedBy=gaudi-serving.target
UNIT
cat >/etc/systemd/system/vllm-late.service <<'UNIT'
[Unit]
Description=Stands for an instance that is started later
[Service]
ExecStart=sleep infinity
UNIT
systemctl enable --quiet --now gaudi-serving.target vllm-probe.service
