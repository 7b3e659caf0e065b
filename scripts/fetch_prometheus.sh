#!/usr/bin/env bash
# Puts Debian's Prometheus and promtool into build/tools/prometheus, without installing them (which would start a
# service). Does nothing when they are there. Prints the directory of the programs.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/build/tools
programs=$tools/prometheus/usr/bin

if [ ! -x "$programs/promtool" ]; then
  mkdir -p "$tools"
  scratch=$(mktemp -d "$tools/fetch-XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  download() { (cd "$scratch" && apt-get download -qq prometheus >apt.log 2>&1); }
  # A machine that has been set up for long may have no lists of packages.
  if ! download && ! { [ "$(id -u)" -eq 0 ] && apt-get update -qq >/dev/null 2>&1 && download; }; then
    {
      echo "penstock: cannot download Debian's package prometheus, which the monitoring test runs:"
      tail -n 3 "$scratch/apt.log" | sed 's/^/  /'
      echo "Give this machine a network and 'apt-get update' once, or unpack the package elsewhere with"
      echo "'dpkg -x prometheus_*.deb $tools/prometheus'."
    } >&2
    exit 1
  fi
  dpkg -x "$scratch"/prometheus_*.deb "$scratch/prometheus"
  rm -rf "$tools/prometheus"
  mv "$scratch/prometheus" "$tools/prometheus"
fi
echo "$programs"
