#!/bin/sh
# Installs the packages of a list in an image, and leaves nothing of the installing behind.
#   install_runtime.sh LIST
set -eu
apt-get update -qq
DEBIAN_FRONTEND=noninteractive xargs apt-get install -y -qq --no-install-recommends < "$1" > /dev/null
apt-get clean
rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log /var/cache/debconf/*-old
