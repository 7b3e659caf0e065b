#!/bin/sh
# Prints the Debian packages whose libraries the given programs ask for, one a line. The packages' own
# dependencies come with them. runtime-client.txt, runtime-coordinator.txt and runtime-worker.txt are its
# output.
#   deploy/docker/runtime_packages.sh PROGRAM...
set -eu
[ $# -ge 1 ] || { echo "usage: runtime_packages.sh PROGRAM..." >&2; exit 2; }

libraries=$(for program in "$@"; do
  objdump -p "$program" | awk '$1 == "NEEDED" { print $2 }'
done | sort -u)
[ -n "$libraries" ] || { echo "runtime_packages.sh: $* asks for no library; is it a program?" >&2; exit 1; }
folder=/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
# dpkg knows the files of a merged /usr by either name, and the links to libraries that packages have.
owners=$(for library in $libraries; do echo "$folder/$library /usr$folder/$library"; done |
  xargs dpkg-query --search 2> /dev/null || true)
packages=$(for library in $libraries; do
  owner=$(echo "$owners" | awk -v library="/$library" '
    substr($2, length($2) - length(library) + 1) == library { sub(/:.*/, "", $1); print $1; exit }')
  [ -n "$owner" ] || { echo "runtime_packages.sh: $library is of no Debian package" >&2; exit 1; }
  echo "$owner"
done)
echo "$packages" | sort -u
