#!/usr/bin/env bash
# Collects in build/gpu-bundle/ what `make gpu-check` needs on a machine with a GPU that has none of the
# libraries Penstock is built with.
#   scripts/gpu_bundle.sh BUILD_DIR [TEXT]
# TEXT: what to train on; by default the licence texts that every Debian system carries.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "usage: scripts/gpu_bundle.sh BUILD_DIR [TEXT]" >&2; exit 2; }
build=$1
text="${2:-}"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ -z "$text" ]; then
  text="$scratch/text.txt"
  find /usr/share/common-licenses -maxdepth 1 -type f | LC_ALL=C sort | xargs -r -d '\n' cat > "$text"
  [ -s "$text" ] || { echo "gpu-bundle: no licence texts here; give a text: make gpu-bundle TEXT=file" >&2; exit 2; }
fi
PYTHONDONTWRITEBYTECODE=1 python3 tests/gpu/bundle.py "$build" build/gpu-bundle "$text"
