#!/usr/bin/env bash
# Builds, and runs on several hosts what the test suites run on one: the bits of one rank by the
# oracle and by the captioner, buffers partly out of reach, ranks that die and links that are cut.
# Hosts have two ranks, or more where a test has more. They are namespaces of this machine, over TCP.
# The exit status is 0 only where everything passes, and 77 where no namespaces can be made. Takes
# some minutes on 2 cores.
#
#   scripts/hosts.sh [HOSTS]     default: 2
#
# MIMO_BUILD: the build folder (default: build-test in the source tree).
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

hosts=${1:-2}
build=${MIMO_BUILD:-$root/build-test}
on_hosts=("$root/tests/support/on_hosts.sh" "$hosts")
install_packages test
"${on_hosts[@]}" true
configure_and_build "$build" --werror
[ -x "$build/tests/oracle/mimo-oracle" ] ||
    fail "mimo-oracle was not built: libopenblas-dev is missing ('scripts/packages.sh test' installs it)"

use_local_mpi
# Ranks outnumber cores: those that wait yield, and none is bound to a core.
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
cd "$build"
status=0
part() {
    echo "== on $hosts hosts: $1"
    shift
    "${on_hosts[@]}" "$@" || status=1
}
mpirun=$(command -v mpirun)
part oracle python3 "$root/tests/oracle/oracle_suite.py" "$mpirun" tests/oracle/mimo-oracle \
    hosts small experts same-bits
part "rows into buffers" "$mpirun" --oversubscribe -n 4 tests/mpi/mpi_test_routed \
    --filter routed_zero_copy/same_bits --filter routed_zero_copy/sums_of_classes
part captioner python3 "$root/tests/examples/test_captioner_same_bits.py" "$mpirun" \
    examples/captioner/captioner
part "ranks that die, links that are cut" python3 "$root/tests/fault/test_host_faults.py" \
    "$mpirun" tests/fault/fault_ranks --every
exit "$status"
