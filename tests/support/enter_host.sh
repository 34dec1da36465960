#!/usr/bin/env bash
# Runs a command on a host of on_hosts.sh, as ssh would: mpirun's plm_rsh_agent. A link that the
# launch before has cut is whole again.
#
#   enter_host.sh HOST COMMAND...
set -euo pipefail

host=/dev/shm/hosts/$1
shift
exec nsenter --net="$host/net" --uts="$host/uts" unshare --mount \
    sh -c "mount --bind $host/shm /dev/shm && ip link set data up && $*"
