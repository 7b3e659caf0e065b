#!/bin/sh
# Starts the program NAME.elf beside this launcher NAME, with the libraries of its bundle. Where the system's
# C library is older than the one that the programs were built with, they run with the bundle's own.
#   PENSTOCK_CUDA_PATH           folders with CUDA's and cuDNN's libraries, separated by colons
#   PENSTOCK_BUNDLE_LOADER=own   the bundle's C library wherever it runs
set -eu
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
program=$here/$(basename "$0").elf
libraries=$here/../usr/lib/x86_64-linux-gnu:$here/../runtime${PENSTOCK_CUDA_PATH:+:$PENSTOCK_CUDA_PATH}

needed=$(cat "$here/../glibc/version")
system=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2)
older=$(printf '%s\n' "$needed" "${system:-0}" | sort -V | head -n 1)
if [ "${PENSTOCK_BUNDLE_LOADER:-}" != own ] && [ "$older" = "$needed" ]; then
  export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  exec "$program" "$@"
fi
# The loader lies beside the programs, because they look for each other beside /proc/self/exe.
exec "$here/ld-linux-x86-64.so.2" \
  --library-path "$here/../glibc:$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$program" "$@"
