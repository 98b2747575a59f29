#!/bin/sh
# One step of building a serving image: steps.sh STEP ARGUMENT... (called by the Dockerfile).
# Addresses and passwords are files below /run/secrets while a step runs; they are in no layer.
set -eu
# No core dumps: what crashes in a build has gigabytes. BuildKit of Docker 20.10 ignores docker build --ulimit.
prlimit --core=0:0 --pid "$$"

programs=/run/gaudi-build
packages=/run/gaudi-packages
secrets=/run/secrets
# What the build is held to, and what the image says that it got from an index.
locked=$packages/lock.txt
lock=/usr/local/share/gaudi-serving/lock.txt
python=python3
# While packages are fetched: apt reads keys as a user who may not read secrets. Here apt itself looks for none; it is
# trusted for the sources that name it (signed-by), which are the site's.
apt_key=/etc/apt/gaudi-serving.asc

export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
export PIP_ROOT_USER_ACTION=ignore GIT_TERMINAL_PROMPT=0
# What was compiled beside the library of the build is nobody's.
export PYTHONDONTWRITEBYTECODE=1
if [ -e "$secrets/pip" ]; then export PIP_CONFIG_FILE="$secrets/pip"; fi
if [ -e "$secrets/git" ]; then export GIT_CONFIG_GLOBAL="$secrets/git"; fi
# apt takes no proxy without a scheme.
for name in http_proxy https_proxy HTTP_PROXY HTTPS_PROXY; do
  eval "value=\${$name:-}"
  # shellcheck disable=SC2154  # eval sets it
  case $value in
    '' | *://*) ;;
    *) export "$name=http://$value" ;;
  esac
done
# The site's certificates with a system's own, for Python, pip, git and curl; apt has an option.
if [ -e "$secrets/ca" ]; then
  export SSL_CERT_FILE="$secrets/ca" REQUESTS_CA_BUNDLE="$secrets/ca" PIP_CERT="$secrets/ca"
  export GIT_SSL_CAINFO="$secrets/ca" CURL_CA_BUNDLE="$secrets/ca"
fi
if [ -n "${GAUDI_BUILD_PATH:-}" ]; then export PATH="$GAUDI_BUILD_PATH:$PATH"; fi

refuse() { # ID SENTENCE
  echo "gaudi-image refused $1: $2" >&2
  exit 1
}

apt() {
  if [ -e "$secrets/apt" ]; then
    set -- -o "Dir::Etc::SourceList=$secrets/apt" -o Dir::Etc::SourceParts=/dev/null "$@"
  fi
  # With the variable alone, apt asks an https server that is an exception as if it were a proxy (seen with 2.6).
  for host in $(echo "${no_proxy:-}" | tr , ' '); do
    case $host in
      .* | *[!A-Za-z0-9.-]*) ;;
      *) set -- -o "Acquire::https::Proxy::$host=DIRECT" "$@" ;;
    esac
  done
  if [ -e "$secrets/ca" ]; then set -- -o "Acquire::https::CaInfo=$secrets/ca" "$@"; fi
  apt-get -o Acquire::Retries=3 "$@"
}

system() { # PACKAGE...
  # One that is there needs no index: base images may have it all.
  # shellcheck disable=SC2016  # the format of dpkg-query
  missing=$(for package; do
    dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done)
  if [ -z "$missing" ]; then return; fi
  if [ -e "$secrets/apt_key" ]; then install -D -m 0644 "$secrets/apt_key" "$apt_key"; fi
  apt update
  # shellcheck disable=SC2086  # names of packages
  apt install --yes --no-install-recommends $missing
  apt-get clean
  rm -rf /var/lib/apt/lists/* "$apt_key"
}

checkout() { # REPOSITORY COMMIT DIRECTORY
  git init --quiet "$3"
  git -C "$3" remote add origin "$1"
  # A host that gives no single commits gives all of its branches.
  git -C "$3" fetch --quiet --depth 1 origin "$2" \
    || git -C "$3" fetch --quiet --tags origin '+refs/heads/*:refs/remotes/origin/*' \
    || exit 1
  if ! git -C "$3" cat-file -e "$2^{commit}"; then
    asked=$(git -C "$3" ls-remote --get-url origin)
    if [ "$asked" != "$1" ]; then asked="$asked (for $1)"; fi
    refuse commit_not_in_repository \
      "$asked has no commit $2. Correct it in serving_image_pins, or name a mirror that has it (serving_image_git_mirrors)."
  fi
  git -C "$3" checkout --quiet --detach "$2"
  # Whoever runs in the image may ask git which commit this is.
  git config --system --add safe.directory "$3"
}

# Nothing puts another PyTorch, or another of the vendor's packages, in the place of the vendor's.
hold() {
  $python -m pip list --format=freeze > /tmp/listed.txt
  # Status 1 is that it found nothing; anything else failed.
  grep -i -E '^(torch|habana)' /tmp/listed.txt > /tmp/held.txt || [ $? -eq 1 ]
}

# Of a package that the index has not, a constraint has pip say that requirements conflict (25.3 adds a hint, 25.0 and
# older do not). So each that it names then is asked for by itself, and pip says whether there is any.
unmet() {
  sed -n 's/.*The user requested (constraint) \([A-Za-z0-9._-]*\).*/\1/p' /tmp/pip.log | sort -u | while read -r name; do
    $python -m pip index versions --pre --retries 1 "$name" > /dev/null || true
  done
  exit 1
}

noted() { # GONE ARGUMENT...: of what was uninstalled before, the name, and what pip is asked
  gone=$1
  shift
  : > /tmp/pip.log
  # A pip before 22.2 reports nothing; the image is then without a lock.
  if $python -m pip install --help | grep -e --report > /dev/null; then
    $python -m pip install --log /tmp/pip.log --report /tmp/report.json "$@" || unmet
    PYTHONPATH="$programs" $python -m gaudi_lock /tmp/report.json "$lock" ${gone:+--gone="$gone"}
    rm -f /tmp/report.json
  else
    $python -m pip install --log /tmp/pip.log "$@" || unmet
  fi
  rm -f /tmp/pip.log
}

pip_install() {
  if [ -e "$locked" ]; then
    # What it needs is there, by the lock.
    $python -m pip install --no-deps "$@"
    return
  fi
  hold
  noted "" --constraint "$packages/constraints.txt" --constraint /tmp/held.txt "$@"
  rm -f /tmp/listed.txt /tmp/held.txt
}

from_lock() { # OPTION...: the lines of /tmp/locked.txt
  $python -m pip install --require-hashes --no-deps "$@" --requirement /tmp/locked.txt
  rm -f /tmp/locked.txt
}

requirements() { # DIRECTORY FILE [--replaced=NAME] [--dropped=NAME]
  directory=$1 file=$2
  shift 2
  PYTHONPATH="$programs" $python -m gaudi_build "$directory/$file" "$@" || exit 1
  [ -e "$locked" ] || pip_install --requirement "$directory/$file"
}

leave() { # DIRECTORY: nothing of a checkout stays but what it installed
  cd /
  rm -rf "$1"
  rmdir --ignore-fail-on-non-empty "$(dirname "$1")"
  ldconfig
}

step=$1
shift
case $step in
  system) system "$@" ;;
  checkout) checkout "$@" ;;
  requirements) requirements "$@" ;;
  install) pip_install "$@" ;;
  packages) [ -e "$locked" ] || pip_install "$@" ;;
  locked)
    # Pillow-SIMD is compiled in a step of its own.
    grep -v -i '^pillow-simd==' "$locked" > /tmp/locked.txt || [ $? -eq 1 ]
    hold
    from_lock --constraint /tmp/held.txt
    install -D -m 0644 "$locked" "$lock"
    rm -f /tmp/listed.txt /tmp/held.txt
    ;;
  make) make -C "$1" ;;
  libfabric) # DIRECTORY PREFIX
    cd "$1"
    sh ./autogen.sh
    # Without the vendor's headers libfabric is built without Gaudi Direct.
    sh ./configure --prefix="$2" --with-synapseai=/usr
    make -j"$(nproc)"
    make install
    leave "$1"
    ;;
  hccl_ofi_wrapper) # DIRECTORY LIBFABRIC
    LIBFABRIC_ROOT=$2 make -C "$1"
    install -D -m 0755 "$1/libhccl_ofi_wrapper.so" /usr/lib/habanalabs/libhccl_ofi_wrapper.so
    leave "$1"
    ;;
  pillow_simd)
    $python -m pip uninstall --yes pillow pillow-simd
    export CC="cc -mavx2"
    # Of it alone: with :all: what it is built with would have to come as its source, too.
    if [ -e "$locked" ]; then
      grep -i "^pillow-simd==$1 " "$locked" > /tmp/locked.txt || refuse not_in_lock \
        "serving_image_lock has no pillow-simd==$1. Take the lock from an image that has the part pillow_simd."
      from_lock --no-binary pillow-simd
    else
      noted pillow --no-deps --no-binary pillow-simd "pillow-simd==$1"
    fi
    ;;
  *) refuse unknown_step "there is no step $step" ;;
esac
