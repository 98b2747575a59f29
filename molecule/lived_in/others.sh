#!/bin/bash
# Give a node what its owners have on it: a container, flags in the engine's unit, package sources, German messages.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Without live-restore a restart of the engine ends the container.
mkdir -p /etc/systemd/system/docker.service.d
cat >/etc/systemd/system/docker.service.d/site.conf <<'UNIT'
[Service]
ExecStart=
ExecStart=/usr/bin/dockerd -H fd:// --log-driver=json-file --log-opt=max-size=10m --label=owner=others
UNIT
systemctl daemon-reload
systemctl restart docker.service
mapfile -t libraries < <(ldd /bin/sleep | grep -o '/[^ ]*')
tar --create --dereference --absolute-names /bin/sleep "${libraries[@]}" | docker import --change 'CMD ["/bin/sleep", "infinity"]' - others:local
docker run --detach --name others --restart=always --network=none others:local

# The vendor's repository under another name and with a keyring of its own; two repositories that do not work.
python3 - "$VENDOR_KEY" >/usr/share/keyrings/others-vendor.asc <<'FETCH'
import sys, urllib.request
sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())
FETCH
cat >/etc/apt/sources.list.d/zz-others-vendor.list <<SOURCE
deb [arch=amd64 signed-by=/usr/share/keyrings/others-vendor.asc] $VENDOR_REPOSITORY/ $VENDOR_SUITE main
SOURCE
cat >/etc/apt/sources.list.d/others-broken.list <<'SOURCE'
deb [signed-by=/usr/share/keyrings/others-vendor.asc] http://deb.debian.org/debian bookworm-backports main
deb http://127.0.0.1:9/refused stable main
SOURCE

# apt reads the other sources, and fails for these two.
if apt-get update --quiet=2; then
  echo 'The broken repositories work' >&2
  exit 1
fi
apt-get install --quiet=2 --yes --no-install-recommends locales >/dev/null
localedef -i de_DE -f UTF-8 de_DE.UTF-8
printf 'LANG=de_DE.UTF-8\n' >/etc/default/locale
