#!/bin/sh
# Prints the Debian packages whose libraries the given programs ask for, one a line. What those packages need in
# their turn comes with them. runtime-client.txt, runtime-coordinator.txt and runtime-worker.txt are its output.
#   deploy/docker/runtime_packages.sh PROGRAM...
set -eu
[ $# -ge 1 ] || { echo "usage: runtime_packages.sh PROGRAM..." >&2; exit 2; }

libraries=$(for program in "$@"; do
  objdump -p "$program" | awk '$1 == "NEEDED" { print $2 }'
done | sort -u)
folder=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
for library in $libraries; do
  path=$(readlink -f "$folder/$library" || true)
  [ -e "$path" ] || path=$(readlink -f "/lib/${folder#/usr/lib/}/$library")
  # dpkg knows libraries of a merged /usr by either name.
  owner=$(dpkg-query --search "$path" 2>/dev/null || dpkg-query --search "${path#/usr}" 2>/dev/null) ||
    { echo "runtime_packages.sh: $library ($path) is of no Debian package" >&2; exit 1; }
  echo "${owner%%:*}"
done | sort -u
