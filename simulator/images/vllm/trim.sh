#!/bin/sh
# Remove tests and torch's tools from a directory of packages: 200 MB that every pull would carry.
# Without its shared memory manager torch does not start.
set -eu
find "$1" -type d \( -name tests -o -path "$1/torch/test" \) -prune -exec rm -r {} +
find "$1/torch/bin" -type f ! -name torch_shm_manager -delete
