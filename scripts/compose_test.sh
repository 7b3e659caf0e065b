#!/usr/bin/env bash
# Brings docker-compose.yml up for real, trains its example job through the containers, checks the cluster, the
# images and Prometheus, and takes everything down again.
#   scripts/compose_test.sh BUILD_DIR [--compile]
# The images take the programs of BUILD_DIR; with --compile they compile them, as `docker compose up --build` does.
# Without Docker on this machine it needs root on Debian, and uses Debian's (scripts/engine.sh). Images that cannot
# be pulled are replaced: the base by a Debian made here, Prometheus by Debian's; Grafana is left out, and its
# provisioning is checked by `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/engine.sh

[ $# -ge 1 ] || { echo "usage: scripts/compose_test.sh BUILD_DIR [--compile]" >&2; exit 2; }
build=$1
compile=${2:-}
folder=$PWD/build/compose-test
project=penstock-test-$$
PENSTOCK_VERSION=

finish() {
  local code=$?
  trap - EXIT INT TERM
  if [ ${#compose[@]} -gt 0 ]; then
    if [ $code -ne 0 ]; then
      echo "---- the end of the logs:" >&2
      "${compose[@]}" --project-name "$project" logs --tail 30 >&2 || true
    fi
    "${compose[@]}" --project-name "$project" down --volumes --remove-orphans --timeout 5 > "$folder/down.log" 2>&1 ||
      { cat "$folder/down.log" >&2; code=1; }
    # The machine's own Docker keeps nothing of the test either.
    [ -n "$engine_local" ] || docker image rm --force penstock-binaries:"$project" penstock-prometheus:debian \
      penstock-{coordinator,worker,client}:"$PENSTOCK_VERSION" > /dev/null 2>&1 || true
  fi
  engine_stop
  rm -rf "$folder"
  exit $code
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

rm -rf "$folder"
mkdir -p "$folder"
engine_start "$folder"
docker version --format 'engine: Docker {{.Server.Version}}'

# Images and ports of its own, so that a cluster may run beside.
export PENSTOCK_VERSION=0-test
export PENSTOCK_PORT= PENSTOCK_WEB_PORT= PROMETHEUS_PORT= GRAFANA_PORT=
services=(coordinator worker1 worker2 worker3 worker4 prometheus)

if [ "$compile" != --compile ]; then
  cmake --install "$build" --strip --prefix "$folder/installed" > /dev/null
  tar -C "$folder/installed" -c . | docker import - penstock-binaries:"$project" > /dev/null
  export PENSTOCK_BINARIES=penstock-binaries:$project
fi
echo "images: building"
started=$SECONDS
"${compose[@]}" --project-name "$project" build setup coordinator worker1 worker2 worker3 worker4 client \
  > "$folder/build.log" 2>&1 || { tail -n 40 "$folder/build.log" >&2; exit 1; }
echo "images: built in $((SECONDS - started)) s"
docker image ls --format '{{.Repository}}:{{.Tag}}  {{.Size}}' |
  sed -n -E 's/^((penstock-(coordinator|worker|client)|debian):.*)/  \1/p'

if ! "${compose[@]}" --project-name "$project" pull prometheus > "$folder/pull.log" 2>&1; then
  echo "images: Prometheus cannot be pulled; taking Debian's"
  docker build --network "${PENSTOCK_BUILD_NETWORK:-default}" -t penstock-prometheus:debian tests/deploy/prometheus \
    > "$folder/prometheus.log" 2>&1 || { tail -n 20 "$folder/prometheus.log" >&2; exit 1; }
  export PROMETHEUS_IMAGE=penstock-prometheus:debian
fi
if "${compose[@]}" --project-name "$project" pull grafana > "$folder/pull.log" 2>&1; then
  services+=(grafana)
else
  echo "images: Grafana cannot be pulled; its container is not run"
fi

echo "cluster: starting"
started=$SECONDS
"${compose[@]}" --project-name "$project" up -d "${services[@]}" > "$folder/up.log" 2>&1 ||
  { cat "$folder/up.log" >&2; exit 1; }
echo "cluster: up in $((SECONDS - started)) s"
PYTHONDONTWRITEBYTECODE=1 python3 tests/deploy/compose_check.py --project "$project" --services "${services[*]}" \
  -- "${compose[@]}"
