#!/usr/bin/env bash
# cut_off.sh NODE POINT COMMAND...: run a command, and cut a node's power when dpkg gets to a point in the driver's
# package: "unpack", with its files to come, or "configure", when DKMS has its modules and has installed none.
set -euo pipefail
node=$1 point=$2
shift 2

# Programs that dpkg finds first. At the point they say so, and wait for the power to go, which takes /run with it.
docker exec --interactive "$node" bash -eu -s "$point" <<'END'
rm -rf /run/cut
mkdir -p /opt/cut /run/cut
echo 'DPkg::Path "/opt/cut:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";' >/etc/apt/apt.conf.d/99cut
mkfifo /run/cut/reached /run/cut/power
echo "$1" >/run/cut/point
for program in dpkg-deb dkms; do
    cat >"/opt/cut/$program" <<'PROGRAM'
#!/bin/sh
point=$(cat /run/cut/point 2>/dev/null)
case "$point $*" in
    "unpack "*--fsys-tarfile*habanalabs-dkms_* | "configure install "*)
        echo "$point" >/run/cut/reached
        read -r _ </run/cut/power
        ;;
esac
PATH=${PATH#/opt/cut:} exec "${0##*/}" "$@"
PROGRAM
    chmod 0755 "/opt/cut/$program"
done
END

"$@" &
run=$!
docker exec "$node" cat /run/cut/reached &
reached=$!
# Whichever ends first, with any status: what follows looks whether the command still runs.
wait -n "$run" "$reached" || true
if ! kill -0 "$run"; then
    kill "$reached"
    echo "The command ended, and dpkg never came to the point."
    exit 2
fi
docker exec "$node" dpkg-query --show --showformat='${Package} ${Version} ${db:Status-Status} ${db:Status-Eflag}\n' habanalabs-dkms
docker kill "$node"
if wait "$run"; then
    echo "The command ended well on a node without power."
    exit 2
fi
