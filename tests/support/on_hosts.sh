#!/usr/bin/env bash
# Runs a command in which mpirun starts its ranks on several hosts: two on the first, two on the
# second, and so on; ranks past two for each host are dealt out evenly.
#
#   on_hosts.sh HOSTS COMMAND...
#
# To MPI and to the library these are hosts: each has a network, a name and a /dev/shm of its own.
# Ranks of one host share memory. Ranks of two speak TCP over the link "data", which a test may cut.
# mpirun uses the link "control". Nothing outside is touched, and all of it is gone when the last
# process is. For the command, each host's /dev/shm is a folder below its own.
#
# Open MPI 4.1 does not see the end of a launch under --enable-recovery where ranks on another host
# end without MPI_Finalize: its caller ends it by SIGTERM. Then it need not wait for ranks.
#
# Needs root. Exit status 77 where no namespaces can be made.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
hosts=/dev/shm/hosts # enter_host.sh knows this path as well

skip() {
    echo "no hosts can be made here: $*"
    exit 77
}

# In namespaces that the hosts are then made from.
enter_own_network() {
    local command own=(unshare --net --mount) said
    [ "$(id -u)" -eq 0 ] || skip "only root may make them"
    for command in ip unshare nsenter; do
        command -v "$command" >/dev/null || skip "$command is missing (Debian: iproute2, util-linux)"
    done
    said=$("${own[@]}" "$here/on_hosts.sh" --try 2>&1) || skip "$said"
    exec "${own[@]}" "$here/on_hosts.sh" --inside "$@"
}

make_switches() {
    mount -t tmpfs tmpfs /dev/shm
    mkdir "$hosts"
    ip link set lo up
    ip link add control type bridge
    ip link add data type bridge
    ip address add 10.77.0.100/24 dev control
    ip link set control up
    ip link set data up
}

# make_link NAME NETWORK HOST: from a switch to the host, with the address NETWORK.HOST.
make_link() {
    local inside=(nsenter --net="$hosts/host$3/net" ip)
    ip link add "$1-$3" type veth peer name "$1" netns "$hosts/host$3/net"
    ip link set "$1-$3" master "$1" up
    "${inside[@]}" address add "$2.$3/24" dev "$1"
    "${inside[@]}" link set "$1" up
}

make_host() {
    local host=$hosts/host$1
    mkdir -p "$host/shm"
    touch "$host/net" "$host/uts"
    unshare --net="$host/net" --uts="$host/uts" sh -c "hostname host$1 && ip link set lo up"
    make_link control 10.77.0 "$1"
    make_link data 10.77.1 "$1"
    echo "host$1 slots=2" >>"$hosts/list"
}

case "${1:-}" in
--try)
    make_switches
    make_host 1
    ;;
--inside)
    make_switches
    for ((host = 1; host <= $2; host++)); do
        make_host "$host"
    done
    shift 2
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_orte_default_hostfile=$hosts/list OMPI_MCA_plm_rsh_agent=$here/enter_host.sh
    export OMPI_MCA_oob_tcp_if_include=control OMPI_MCA_btl_tcp_if_include=data
    export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader,tcp OMPI_MCA_odls_base_sigkill_timeout=0
    exec "$@"
    ;;
*)
    if [ $# -lt 2 ] || ! [[ $1 =~ ^[1-9][0-9]?$ ]]; then # addresses end with the host's number
        echo "usage: on_hosts.sh HOSTS COMMAND...     with 1 to 99 hosts" >&2
        exit 2
    fi
    enter_own_network "$@"
    ;;
esac
