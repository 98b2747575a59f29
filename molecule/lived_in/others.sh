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
Environment="HTTPS_PROXY=http://others:account-of-others@127.0.0.1:3128" "NO_PROXY=registry.others"
UNIT
# As nobody would write it who renders JSON.
mkdir -p /etc/docker
printf '{"max-concurrent-downloads":5}' >/etc/docker/daemon.json
cp /etc/docker/daemon.json /usr/local/lib/others-daemon.json
systemctl daemon-reload
systemctl restart docker.service
mapfile -t libraries < <(ldd /bin/sleep | grep -o '/[^ ]*')
tar --create --dereference --absolute-names /bin/sleep "${libraries[@]}" | docker import --change 'CMD ["/bin/sleep", "infinity"]' - others:local
docker run --detach --name others --restart=always --network=none others:local
docker run --detach --name passing --rm --network=none others:local
docker run --detach --name paused --network=none others:local
docker pause paused

# The vendor's repository under another name and with a keyring of its own; two repositories that do not work.
python3 - "$VENDOR_KEY" >/usr/share/keyrings/others-vendor.asc <<'FETCH'
import sys, urllib.request
sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())
FETCH
# It is reached through a proxy with an account, which apt's configuration alone names.
mapfile -t vendor < <(python3 - "$VENDOR_REPOSITORY" <<'ADDRESS'
import socket, sys, urllib.parse
host = urllib.parse.urlsplit(sys.argv[1]).hostname
print(host, socket.gethostbyname(host), sep="\n")
ADDRESS
)
cat >/usr/local/lib/others-proxy.py <<'PROXY'
import base64, http.server, sys, urllib.error, urllib.request
HOST, ADDRESS, ACCOUNT = sys.argv[1], sys.argv[2], base64.b64encode(b"others:account-of-others").decode()

class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.headers.get("Proxy-Authorization") != f"Basic {ACCOUNT}":
            return self.send_error(407)
        try:
            answer = urllib.request.urlopen(self.path.replace(HOST, ADDRESS), timeout=30)
        except urllib.error.HTTPError as error:
            answer = error
        body = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.ThreadingHTTPServer(("127.0.0.1", 3128), Proxy).serve_forever()
PROXY
systemd-run --quiet --unit=others-proxy python3 /usr/local/lib/others-proxy.py "${vendor[@]}"
printf 'Acquire::http::Proxy::%s "http://others:account-of-others@127.0.0.1:3128";\n' "${vendor[0]}" >/etc/apt/apt.conf.d/zz-others-proxy
printf '127.0.0.1 %s\n' "${vendor[0]}" >>/etc/hosts
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
