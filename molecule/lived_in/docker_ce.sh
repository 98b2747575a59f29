#!/bin/bash
# Make packages that are named, split and in conflict as Docker's own are, out of Debian's docker.io, and install them.
# Docker's repository cannot be reached from a test. Names and relations are those of docker-ce 5:29 for Debian 12.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"
apt-get update --quiet=2
# The libraries and programs that Docker's packages need as well.
apt-get install --quiet=2 --yes --no-install-recommends iptables libdevmapper1.02.1 libsystemd0 >/dev/null
apt-get download --quiet=2 docker.io containerd runc
for package in docker.io containerd runc; do dpkg-deb --raw-extract "$package"_*.deb "$package"; done

# package NAME VERSION RELATIONS: build and keep what is in the folder NAME.
package() {
  mkdir -p "$1/DEBIAN"
  chmod 755 "$1" "$1/DEBIAN"
  printf 'Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: Simulated <simulator@localhost>\n%s\nDescription: %s\n' \
    "$1" "$2" "$3" 'Simulated: not a package of Docker' >"$1/DEBIAN/control"
  dpkg-deb --build --root-owner-group -Znone "$1" "$1.deb" >/dev/null
}

mkdir -p docker-ce-cli/usr/bin containerd.io/usr/bin docker-ce/usr/bin docker-ce/lib/systemd/system
mv docker.io/usr/bin/docker docker-ce-cli/usr/bin/
mv containerd/usr/bin/containerd* runc/usr/sbin/runc containerd.io/usr/bin/
mkdir -p containerd.io/lib/systemd/system
sed 's|/usr/sbin/|/usr/bin/|' containerd/lib/systemd/system/containerd.service >containerd.io/lib/systemd/system/containerd.service
find docker.io/usr/sbin docker.io/usr/bin -maxdepth 1 -type f -exec mv {} docker-ce/usr/bin/ \;
for unit in docker.service docker.socket; do
  sed 's|/usr/sbin/dockerd|/usr/bin/dockerd|' "docker.io/lib/systemd/system/$unit" >"docker-ce/lib/systemd/system/$unit"
done
printf '#!/bin/sh\nset -e\ngetent group docker >/dev/null || groupadd --system docker\n' >docker-ce.postinst
mkdir -p docker-ce/DEBIAN
install -m 755 docker-ce.postinst docker-ce/DEBIAN/postinst

package containerd.io 1.7.29-1 $'Provides: containerd, runc\nConflicts: containerd, runc\nReplaces: containerd, runc'
package docker-ce-cli 5:29.0.0-1 $'Conflicts: docker (<< 1.5~)\nBreaks: docker-ce (<< 5:0)'
package docker-ce 5:29.0.0-1 $'Depends: containerd.io (>= 1.6), docker-ce-cli, iptables\nConflicts: docker (<< 1.5~), docker.io\nReplaces: docker-engine'
apt-get install --quiet=2 --yes --no-install-recommends ./containerd.io.deb ./docker-ce-cli.deb ./docker-ce.deb >/dev/null
systemctl daemon-reload
systemctl enable --quiet --now containerd.service docker.service
