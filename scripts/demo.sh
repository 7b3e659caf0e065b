#!/usr/bin/env bash
# Trains the demo's model twice, with 1f1b and with pipedream, on the same seed and data, and compares.
#   scripts/demo.sh BUILD_DIR [TEXT]
# TEXT: what to train on; by default the licence texts that every Debian system carries.
# Everything it makes is in demo-output/.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "usage: scripts/demo.sh BUILD_DIR [TEXT]" >&2; exit 2; }
penstock="$1/bin/penstock"
text="${2:-}"
output=demo-output
methods=(1f1b pipedream)

[ -x "$penstock" ] || { echo "demo: $penstock is missing; \`make build\` makes it" >&2; exit 2; }
mkdir -p "$output"
rm -rf "$output/checkpoints"
if [ -z "$text" ]; then
  text="$output/text.txt"
  find /usr/share/common-licenses -maxdepth 1 -type f | LC_ALL=C sort | xargs -r -d '\n' cat > "$text"
  [ -s "$text" ] || { echo "demo: no licence texts here; give a text: make demo TEXT=file" >&2; exit 2; }
fi

results=()
for method in "${methods[@]}"; do
  results+=("$output/$method.json")
  echo "Training with $method on $text ($(wc -c < "$text") bytes), two workers:"
  "$penstock" train examples/demo.yaml --workers 2 --method "$method" --data "$text" \
    --set "checkpoint.directory=$output/checkpoints/$method" --timeline "$output/$method" \
    --json > "$output/$method.json"
  echo
done

"$penstock" compare --results "${results[@]}"

echo
echo "A sample of what the pipedream model writes:"
echo
"$penstock" generate "$output/checkpoints/pipedream" --prompt "  " --tokens 400 --seed 1 | sed 's/^/  /'

echo
echo "Timelines of the last steps, measured on the workers:"
for method in "${methods[@]}"; do
  echo "  $output/$method.svg           a picture"
  echo "  $output/$method.trace.json    for ui.perfetto.dev"
done
