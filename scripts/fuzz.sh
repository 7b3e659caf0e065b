#!/usr/bin/env bash
# Runs the fuzz targets with libFuzzer, one after the other, and prints a table.
# usage: scripts/fuzz.sh BUILD_DIR SECONDS [NAME]   SECONDS: of each target; NAME: one of them alone
#
# With FUZZ_RUNS=N in the environment a target ends after N executions, or after SECONDS if that is sooner.
# FUZZ_OPTIONS are more of libFuzzer, such as -entropic=0, which makes targets with much code several times faster.
#
# A target starts from its inputs under tests/fuzz/corpus and from those that earlier runs have found, which stay in
# BUILD_DIR/corpus. An input that crashes, hangs, leaks or takes too much memory is kept in BUILD_DIR/crashes, and is tried
# first from then on. Exits with 1 if there is any.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: scripts/fuzz.sh BUILD_DIR SECONDS [NAME]" >&2; exit 2; }
cd "$(dirname "$0")/.."
build=$1
seconds=$2
only=${3:-}
# Memory that was freed stays unused for a while, so that its use is seen; the default is half of the limit below.
export ASAN_OPTIONS=quarantine_size_mb=32:allocator_may_return_null=0:${ASAN_OPTIONS:-}
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS:-}

# The last value of a line "stat::NAME: VALUE" of a log, or 0.
figure() { sed -n "s/^stat::$2: *//p" "$1" | tail -n 1 | grep . || echo 0; }

printf '%-20s %12s %10s %8s %8s\n' target executions per_second corpus crashes
found=0
known=0
began=$(mktemp)
trap 'rm -f "$began"' EXIT
while read -r name input_bytes_max; do
  [ -z "$only" ] || [ "$only" = "$name" ] || continue
  known=1
  corpus=$build/corpus/$name
  crashes=$build/crashes/$name
  log=$build/fuzz-$name.log
  words=tests/fuzz/words/$name.dict
  mkdir -p "$corpus" "$crashes"
  # It ends at the first crash, with another status than 0; what it found is counted below.
  touch "$began"
  "$build/tests/fuzz/${name}_fuzz" "$corpus" "tests/fuzz/corpus/$name" "$crashes" \
    -max_total_time="$seconds" -runs="${FUZZ_RUNS:--1}" -max_len="$input_bytes_max" -timeout=5 -rss_limit_mb=512 -malloc_limit_mb=256 \
    -artifact_prefix="$crashes/" -print_final_stats=1 -print_funcs=0 ${FUZZ_OPTIONS:-} $([ -f "$words" ] && echo "-dict=$words") \
    < /dev/null > "$log" 2>&1 && ended=0 || ended=$?
  count=$(find "$crashes" -type f -newer "$began" | wc -l)
  printf '%-20s %12s %10s %8s %8s\n' "$name" "$(figure "$log" number_of_executed_units)" \
    "$(figure "$log" average_exec_per_sec)" "$(find "$corpus" -type f | wc -l)" "$count"
  [ "$ended" -eq 0 ] || echo "  ended with $ended: $log"
  [ "$ended" -eq 0 ] && [ "$count" -eq 0 ] || found=1
done < "$build/fuzz_targets.txt"
[ "$known" -eq 1 ] || { echo "scripts/fuzz.sh: no target named $only; $build/fuzz_targets.txt has them" >&2; exit 2; }
exit $found
