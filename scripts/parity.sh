#!/usr/bin/env bash
# Compares a small GPT with PyTorch, from the same weights and batches: gradients, losses, weights. Then PipeDream with the
# numbers that NumPy draws for figure 2b of arXiv 2606.03498: its four losses, to every published digit.
# usage: scripts/parity.sh BUILD_DIR
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: scripts/parity.sh BUILD_DIR" >&2; exit 2; }
cd "$(dirname "$0")/.."
scripts/setup.sh packages-parity.txt
cmake --build "$1" --target parity_dump --target penstock >/dev/null

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
failed=0
for head in tied untied; do
  mkdir "$directory/$head"
  "$1/tests/parity/parity_dump" "$directory/$head" "$head"
  env -u OPENBLAS_CORETYPE PYTHONDONTWRITEBYTECODE=1 \
    /usr/bin/python3 tests/parity/compare.py "$directory/$head" "$head" || failed=1
done

/usr/bin/python3 studies/theory/draw_numbers.py "$directory/numbers.safetensors"
"$1/bin/penstock" theory drawn --data "$directory/numbers.safetensors" -o "$directory/drawn" > "$directory/drawn.txt"
grep agrees "$directory/drawn.txt" || true
[ "$(grep -c agrees "$directory/drawn.txt")" -eq 4 ] || { cat "$directory/drawn.txt"; failed=1; }
exit $failed
