#!/usr/bin/env bash
# Installs the packages of packages.txt that this machine lacks. Does nothing, and needs no rights,
# when all are there.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t wanted < <(sed -E 's/#.*//; /^[[:space:]]*$/d; s/[[:space:]]//g' packages.txt "$@")
missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "penstock: installing ${#missing[@]} missing packages: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "penstock: installing packages needs root; run as root: apt-get install ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
