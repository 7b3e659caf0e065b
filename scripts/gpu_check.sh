#!/usr/bin/env bash
# Checks Penstock on this machine's GPU, each part in under nine minutes, and prints a table last (docs/gpu-check.md).
#   scripts/gpu_check.sh [--part PART | --only STEP,...] [--json FILE] [--dry-run] [...]   (--help lists all)
# Needs Python; with PyTorch it compares the speed, with CMake and a compiler it builds the back-end.
set -euo pipefail
cd "$(dirname "$0")/.."

has_torch() {
  "$1" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null
}

python=${PYTHON:-python3}
for candidate in "$python" /usr/bin/python3; do
  if has_torch "$candidate"; then
    python=$candidate
    break
  fi
done
PYTHONDONTWRITEBYTECODE=1 exec "$python" tests/gpu/check.py "$@"
