#!/usr/bin/env bash
# Runs the benchmarks. usage: scripts/bench.sh BUILD_DIR [NAME...]   (all without a name)
#   transport   tensor streaming over loopback against raw TCP and a protobuf stream
#   compute     layers, beside what the machine allows, and one worker's samples/s against PyTorch
#   planning    plans of graphs, clusters and jobs as layers, workers and methods grow, with pictures
#   pipeline    two workers against two trainings side by side; steps predicted and measured
#   shared      the first of these where others use the cores, beside what the cores allow then
#   threads     one worker with two threads against one, and against two workers
#   scraping    a run with and without a scrape every second
# Ratios come from pairs of runs and stand a busy machine; absolute figures need a quiet one.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: scripts/bench.sh BUILD_DIR [transport|compute|planning|pipeline|shared|threads|scraping...]" >&2; exit 2; }
cd "$(dirname "$0")/.."
build=$1
shift
[ $# -gt 0 ] || set -- transport compute planning pipeline shared threads scraping

# Runs a command with the licence texts of this system as its last argument.
on_licences() {
  cmake --build "$build" --target penstock penstock-worker penstock-coordinator >/dev/null
  local text
  text=$(mktemp)
  find /usr/share/common-licenses -maxdepth 1 -type f | LC_ALL=C sort | xargs -r -d '\n' cat > "$text"
  "$@" "$text"
  rm -f "$text"
}

echo "machine: $(nproc) cores, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2- | xargs)," \
  "load $(cut -d' ' -f1 /proc/loadavg)"
for name in "$@"; do
  echo
  echo "== $name"
  case $name in
    transport)
      cmake --build "$build" --target transport_benchmark >/dev/null
      "$build/tests/bench/transport_benchmark"
      ;;
    compute) scripts/bench_compute.sh "$build" ;;
    planning)
      cmake --build "$build" --target planner_benchmark job_plan_benchmark benchmark_chart >/dev/null
      results=$(mktemp -d)
      "$build/tests/bench/planner_benchmark" --benchmark_filter='PlanChain|PlacePlan' \
        --benchmark_out="$results/graphs.json"
      "$build/tests/bench/job_plan_benchmark" --benchmark_out="$results/jobs.json"
      for what in graphs jobs; do
        "$build/tests/bench/benchmark_chart" workers "CPU time of a plan" \
          < "$results/$what.json" > "docs/images/planning-$what.svg"
        echo "wrote docs/images/planning-$what.svg"
      done
      rm -r "$results"
      ;;
    pipeline) on_licences tests/bench/pipeline.py "$build/bin/penstock" ;;
    shared)
      cmake --build "$build" --target compute_train >/dev/null
      on_licences tests/bench/shared_cores.py "$build"
      ;;
    threads) on_licences tests/bench/pipeline.py --threads "$build/bin/penstock" ;;
    scraping) on_licences tests/bench/scrape_cost.py "$build" ;;
    *)
      echo "scripts/bench.sh: no benchmark named $name" >&2
      exit 2
      ;;
  esac
done
