#!/bin/sh
# What autoremove would remove if an update brought one more kernel (an empty package stands for it): with the file of
# the role gaudi_driver, then without. apt itself keeps the two newest kernels, and the one that runs.
set -eu
image=linux-image-$(head -n 1 /usr/share/gaudi-simulator/kernels)
kept=/etc/apt/apt.conf.d/53gaudi-serving-kernel
newer=linux-image-99.9.9-1-cloud-amd64
work=$(mktemp -d)
mkdir "$work/DEBIAN"
cat >"$work/DEBIAN/control" <<CONTROL
Package: $newer
Version: 99.9.9-1
Architecture: amd64
Maintainer: nobody <nobody@localhost>
Description: stands for a kernel
CONTROL
dpkg-deb --build -Znone "$work" "$work.deb" >/dev/null
dpkg --install "$work.deb" >/dev/null
apt-mark auto "$image" >/dev/null
echo "kept: $(apt-get --simulate autoremove | grep -c "^Remv $image ")"
mv "$kept" "$work"
echo "not kept: $(apt-get --simulate autoremove | grep -c "^Remv $image ")"
mv "$work/${kept##*/}" "$kept"
apt-mark manual "$image" >/dev/null
dpkg --purge "$newer" >/dev/null
rm -r "$work" "$work.deb"
