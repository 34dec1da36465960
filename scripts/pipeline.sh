#!/usr/bin/env bash
# Runs what takes too long for the suites on pipelines: checkpoints of the captioner on 8 ranks under pp 2 and
# 4 by every schedule, with experts and without, each against the one of one rank; a stage that dies before each
# of its steps; 200 launches of four stages; 1,000 steps by nodes, whose file is that of one rank and whose memory
# stays. The exit status is 0 only where all was right.
#
#   scripts/pipeline.sh [part...]    default: bits deaths launches long
#
# MIMO_BUILD: the build folder (default: build-test in the source tree).
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

build=${MIMO_BUILD:-$root/build-test}
install_packages test
configure_and_build "$build" --werror

use_local_mpi
[ $# -gt 0 ] || set -- bits deaths launches long
cd "$build" || exit 1
for part in "$@"; do
    case $part in
    bits) python3 "$root/tests/examples/captioner_pipelines.py" mpirun examples/captioner/captioner ;;
    deaths) python3 "$root/tests/fault/test_dead_stages.py" mpirun tests/oracle/pipeline_ranks --every ;;
    launches)
        # Stage 2 would die before step 1000, which no list has.
        for ((i = 1; i <= 200; i++)); do
            timeout 60 mpirun --oversubscribe -n 4 tests/oracle/pipeline_ranks 1000 kill >launch.log 2>&1 || true
            if [ "$(grep -c 'call MIMO_OK' launch.log)" != 4 ]; then
                cat launch.log
                fail "launch $i of 200"
            fi
        done
        echo "200 launches of 4 stages ended"
        ;;
    long) python3 "$root/tests/examples/captioner_long.py" mpirun examples/captioner/captioner ;;
    *) fail "there is no part '$part'" ;;
    esac
done
