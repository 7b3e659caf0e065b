#!/usr/bin/env bash
# Layers of the CPU back-end by themselves, then one worker's tokens/s against eager PyTorch.
# usage: scripts/bench_compute.sh BUILD_DIR
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: scripts/bench_compute.sh BUILD_DIR" >&2; exit 2; }
cd "$(dirname "$0")/.."
scripts/setup.sh packages-parity.txt
cmake --build "$1" --target compute_benchmark compute_train >/dev/null

"$1/tests/bench/compute_benchmark" --benchmark_counters_tabular=true
# One thread each; an exported OPENBLAS_CORETYPE would slow PyTorch down.
env -u OPENBLAS_CORETYPE OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 \
  /usr/bin/python3 tests/bench/compare_torch.py "$1/tests/bench/compute_train"
