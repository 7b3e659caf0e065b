#!/usr/bin/env bash
# Compares tokenizers with the packages tokenizers and sentencepiece, and models with transformers.
# usage: scripts/parity_packages.sh BUILD_DIR TEXT
# PARITY_PYTHON names a Python that has torch, transformers, safetensors, tokenizers, sentencepiece and numpy; without it they are
# installed in BUILD_DIR/parity.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: scripts/parity_packages.sh BUILD_DIR TEXT" >&2; exit 2; }
text=$(realpath "$2")
cd "$(dirname "$0")/.."
scripts/setup.sh packages-parity.txt
cmake --build "$1" --target tokenize model_dump penstock penstock-coordinator penstock-worker >/dev/null

python=$(scripts/python_with.sh "${PARITY_PYTHON:-}" "$1/parity" torch transformers safetensors tokenizers sentencepiece numpy)
export PYTHONDONTWRITEBYTECODE=1
failed=0
"$python" tests/parity/compare_tokenizers.py "$1/tests/parity/tokenize" "$text" || failed=1
OMP_NUM_THREADS=1 "$python" tests/parity/compare_transformers.py "$1" || failed=1
exit $failed
