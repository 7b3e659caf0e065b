# An engine for containers, for scripts that source this file: the machine's own Docker if there is one, else
# Debian's, unpacked and run under FOLDER, with a base image made from the machine's own package sources. Nothing of
# it is left outside FOLDER, and nothing of it runs when engine_stop has returned.
#
#   engine_start FOLDER   sets compose (an array: the command) and PENSTOCK_BUILD_NETWORK, and exports what
#                         Docker's programs read; engine_local says whether the engine is ours
#   engine_stop           takes the local engine down and removes FOLDER/engine

engine_local=
engine_sockets=
compose=()

engine_start() {
  local folder=$1
  export DOCKER_BUILDKIT=1 COMPOSE_DOCKER_CLI_BUILD=1 BUILDKIT_PROGRESS=plain
  if docker info > /dev/null 2>&1; then
    if docker compose version > /dev/null 2>&1; then
      compose=(docker compose)
      return
    elif command -v docker-compose > /dev/null; then
      compose=(docker-compose)
      return
    fi
  fi
  _engine_unpack "$folder/engine"
  engine_local=$folder/engine
  compose=(docker-compose)
  _engine_run
  docker image inspect debian:bookworm-slim > /dev/null 2>&1 || _engine_make_base
  # Our engine leaves the machine's firewall alone, so its own networks lead nowhere.
  export PENSTOCK_BUILD_NETWORK=host
}

engine_stop() {
  [ -n "$engine_local" ] || return 0
  local daemon
  daemon=$(cat "$engine_local/docker.pid" 2>/dev/null || true)
  if [ -n "$daemon" ] && kill "$daemon" 2>/dev/null; then
    timeout 60 tail --pid="$daemon" -f /dev/null || kill -9 "$daemon" || true
  fi
  # Unmounts what a killed engine leaves mounted.
  awk -v data="$engine_local/" -v sockets="$engine_sockets/" \
      'index($2, data) == 1 || index($2, sockets) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount --lazy
  rm -rf "$engine_local" "$engine_sockets"
  engine_local=
}

_engine_unpack() {
  local root=$1/root package
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
    echo "engine: no Docker with compose answers here, and without root on Debian none can be had" >&2
    return 2
  fi
  scripts/setup.sh packages-compose.txt
  mkdir -p "$root" "$1/packages"
  echo "engine: unpacking Debian's Docker in $1"
  (cd "$1/packages" && apt-get download -qq docker.io containerd runc tini 2> /dev/null)
  for package in "$1"/packages/*.deb; do dpkg-deb --extract "$package" "$root"; done
  export PATH=$root/usr/bin:$root/usr/sbin:$PATH
}

_engine_run() {
  # Sockets have short paths.
  engine_sockets=$(mktemp -d /tmp/penstock-engine.XXXXXX)
  export DOCKER_HOST=unix://$engine_sockets/docker.sock DOCKER_CONFIG=$engine_local/config
  local storage
  for storage in overlay2 vfs; do
    setsid dockerd --data-root "$engine_local/data" --exec-root "$engine_sockets/exec" --host "$DOCKER_HOST" \
      --pidfile "$engine_local/docker.pid" --iptables=false --ip6tables=false --bridge=none \
      --storage-driver "$storage" > "$engine_local/log" 2>&1 < /dev/null &
    local daemon=$!
    for _ in $(seq 300); do
      docker info > /dev/null 2>&1 && return
      kill -0 "$daemon" 2> /dev/null || break
      sleep 0.1
    done
  done
  echo "engine: dockerd does not start; the end of its log:" >&2
  tail -n 5 "$engine_local/log" >&2
  return 1
}

# The base image, where none can be pulled: a minimal Debian of the machine's own sources.
_engine_make_base() {
  local rootfs=$engine_local/rootfs codename sources
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  sources=$(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) main' \
      'Created-By: Packages' 'Component: main' 'Origin: Debian' "Architecture: $(dpkg --print-architecture)" |
    sort -u)
  local archive
  archive=$(awk -v suite="$codename" '$3 == suite { print $2; exit }' <<< "$sources")
  echo "engine: making the base image (Debian $codename)"
  debootstrap --variant=minbase "$codename" "$rootfs" "$archive" > "$engine_local/debootstrap.log" ||
    { tail -n 5 "$engine_local/debootstrap.log" >&2; return 1; }
  echo "$sources" > "$rootfs/etc/apt/sources.list"
  rm -rf "$rootfs"/var/cache/apt/archives/*.deb "$rootfs"/var/lib/apt/lists/* "$rootfs"/usr/share/{doc,man,locale}/*
  tar -C "$rootfs" -c . | docker import --change 'CMD ["/bin/bash"]' - debian:bookworm-slim > /dev/null
  rm -rf "$rootfs"
}
