#!/usr/bin/env bash
# cut_off.sh NODE COMMAND...: run a command, and cut the power of a node while dpkg replaces packages of its driver.
set -euo pipefail
node=$1
shift
"$@" &
run=$!
# shellcheck disable=SC2016  # dpkg-query's own names
look=(docker exec "$node" dpkg-query --show --showformat='${db:Status-Status}\n' 'habanalabs*')
until [[ $("${look[@]}") == *unpacked* ]]; do
  kill -0 "$run" || { echo "The command ended, and dpkg was never seen at work."; exit 2; }
done
docker kill "$node"
if wait "$run"; then
  echo "The command ended well on a node without power."
  exit 2
fi
