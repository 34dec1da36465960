#!/usr/bin/env bash
# The captioner on 8 ranks loses random ones at random moments, under grids with tp, cp, stages and experts: ranks
# are killed, also while they write a checkpoint and while they recover, or stopped until the others have gone on.
# Each run must end with the very file of a run that nothing happened to; the exit status is 0 only then. At the end one
# run recovers 20 times, and its memory, descriptors and /dev/shm have to stay flat. 100 runs
# take some 20 minutes on 2 cores.
#
#   scripts/survive.sh [runs [seed]]    default: 100 1
#
# MIMO_BUILD: the build folder (default: build-test in the source tree).
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

build=${MIMO_BUILD:-$root/build-test}
install_packages test
configure_and_build "$build" --werror

use_local_mpi
exec python3 "$root/tests/examples/captioner_survivors.py" mpirun "$build/examples/captioner/captioner" \
    "${1:-100}" "${2:-1}"
