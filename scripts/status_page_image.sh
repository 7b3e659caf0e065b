#!/usr/bin/env bash
# Takes a picture of the coordinator's status page while a job runs on four workers.
#   scripts/status_page_image.sh BUILD_DIR PICTURE.png [light|dark]
# The workers have the times of examples/devices/equal.yaml, so that the picture is of four equal devices
# on any machine.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { echo "usage: scripts/status_page_image.sh BUILD_DIR PICTURE.png [light|dark]" >&2; exit 2; }
bin="$1/bin"
picture="$2"
scheme="${3:-light}"

work=$(mktemp -d)
programs=()
trap 'kill "${programs[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
find /usr/share/common-licenses -maxdepth 1 -type f | LC_ALL=C sort | xargs -r -d '\n' cat > "$work/input.txt"

"$bin/penstock-coordinator" --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --state "$work/state" --insecure 2> "$work/log" &
programs+=($!)
address() { sed -n "s|.*$1\(127\.0\.0\.1:[0-9]*\).*|\1|p" "$work/log" | head -1; }
for _ in $(seq 100); do
  [ -n "$(address 'listens on ')" ] && break
  sleep 0.1
done
grpc=$(address 'listens on ')
for worker in 0 1 2 3; do
  "$bin/penstock-worker" --coordinator "$grpc" --listen 127.0.0.1:0 --name "worker-$worker" \
    --data-root "$work" --threads 1 --metrics off --insecure --emulate examples/devices/equal.yaml 2> "$work/worker-$worker.log" &
  programs+=($!)
done

job=$("$bin/penstock" submit examples/small.yaml --data "$work/input.txt" --coordinator "$grpc" --insecure --no-wait --json \
  --set pipeline.method=pipedream --set pipeline.stages=4 | sed -n 's/.*"job_id": "\([^"]*\)".*/\1/p')
for _ in $(seq 600); do  # until validation has been done a few times
  step=$("$bin/penstock" status "$job" --coordinator "$grpc" --insecure --json | sed -n 's/^  "step": \([0-9]*\),/\1/p')
  [ "${step:-0}" -ge 130 ] && break
  sleep 0.2
done
features=$([ "$scheme" = dark ] && echo --blink-settings=preferredColorScheme=0 || echo --blink-settings=preferredColorScheme=1)
chromium-headless-shell --no-sandbox --disable-gpu --hide-scrollbars "$features" --window-size=1440,1500 \
  --user-data-dir="$work/browser" --virtual-time-budget=6000 --screenshot="$picture" \
  "http://$(address 'http://')/#job=$job" 2> "$work/browser.log"
echo "wrote $picture"
