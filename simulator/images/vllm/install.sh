#!/bin/sh
# Install vLLM for CPUs from the wheelhouse mounted at /mnt: no index is asked.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

apt-get update
apt-get install --yes --no-install-recommends libnuma1 python3-venv
apt-get clean
rm -rf /var/lib/apt/lists/*

python3 -m venv /opt/venv
/opt/venv/bin/pip install --quiet --no-index --no-deps --no-cache-dir --find-links /mnt --requirement "$here/requirements.txt"
sh "$here/trim.sh" /opt/venv/lib/python3.11/site-packages
