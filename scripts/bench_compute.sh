#!/usr/bin/env bash
# Layers of the CPU back-end by themselves, then inside models beside what the machine allows, then one worker's samples/s
# against PyTorch 2, eager and compiled.
# usage: scripts/bench_compute.sh BUILD_DIR
# TORCH_PYTHON names a Python that has torch 2 and torchvision; without it they are installed in BUILD_DIR/torch.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: scripts/bench_compute.sh BUILD_DIR" >&2; exit 2; }
cd "$(dirname "$0")/.."
scripts/setup.sh packages-parity.txt
cmake --build "$1" --target compute_benchmark compute_train layer_roofline >/dev/null

"$1/tests/bench/compute_benchmark" --benchmark_counters_tabular=true
"$1/tests/bench/layer_roofline"
python=$(scripts/python_with.sh "${TORCH_PYTHON:-}" "$1/torch" torch torchvision)
OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 \
  "$python" tests/bench/compare_torch.py "$1/tests/bench/compute_train" --curves
