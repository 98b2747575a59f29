#!/bin/sh
# Install the stand-ins into the image of a simulated node: install.sh, as root, in a build step.
# Debian 12 with python3 and kmod; everything lands in the places of the real tools.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
lib=/usr/local/lib/gaudi-simulator

install -d "$lib/standins" "$lib/kmod" /etc/gaudi-simulator /etc/habana-container-runtime
install -m 0755 "$here"/*.py "$lib/standins/"
install -m 0644 "$here"/*.service /etc/systemd/system/
install -m 0644 "$here/habana-container-runtime.toml" /etc/habana-container-runtime/config.toml

ln -sf "$lib/standins/hl_smi.py" /usr/bin/hl-smi
for generation in gaudi2 gaudi3; do
  install -d "/opt/habanalabs/qual/$generation/bin"
  ln -sf "$lib/standins/hl_qual.py" "/opt/habanalabs/qual/$generation/bin/hl_qual"
done
ln -sf "$lib/standins/habana_container_runtime.py" /usr/bin/habana-container-runtime
ln -sf "$lib/standins/dkms.py" /usr/sbin/dkms

# The real tools stay within reach of the stand-ins; dpkg keeps out of the way when kmod is upgraded.
for tool in lsmod modinfo modprobe; do
  path=$(command -v "$tool")
  dpkg-divert --quiet --local --rename --divert "$lib/kmod/$tool" --add "$path"
  ln -sf "$(readlink -f /bin/kmod)" "$lib/kmod/$tool"
  ln -sf "$lib/standins/kmod.py" "$path"
done

# No service manager runs in an image build: the link is what "systemctl enable" makes.
install -d /etc/systemd/system/multi-user.target.wants
ln -sf ../gaudi-simulator.service /etc/systemd/system/multi-user.target.wants/gaudi-simulator.service
