#!/usr/bin/env bash
# Builds mimo-oracle and runs the whole matrix: every pair of grids on 8 ranks, pairs on 1 to 12
# ranks, every mutation, and wrong arguments. Takes some minutes on 2 cores. The exit status is 0
# only where every launch ended as it must. The full logs go to oracle-logs/ in the build folder.
#
#   scripts/oracle.sh [part...]     default: small every every-adapters every-experts every-stages
#                                   same-bits every-same-bits curves mutations self-test arguments
#                                   captioner-experts captioner-images
#
# captioner-experts: the captioner's mixtures of experts on more topologies than its test has.
# captioner-images: its samples of several pictures on many, with --balance and without.
# Five more parts run only by name: eight, adapters, experts and stages (parts of the others), and
# effects (what each mutation does to training).
#
# MIMO_BUILD: the build folder (default: build-test in the source tree).
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

build=${MIMO_BUILD:-$root/build-test}
install_packages test
configure_and_build "$build" --werror
[ -x "$build/tests/oracle/mimo-oracle" ] ||
    fail "mimo-oracle was not built: libopenblas-dev is missing ('scripts/packages.sh test' installs it)"

use_local_mpi
[ $# -gt 0 ] ||
    set -- small every every-adapters every-experts every-stages same-bits every-same-bits \
        curves mutations self-test arguments captioner-experts captioner-images
cd "$build"
parts=()
failed=0
for part in "$@"; do
    if [ "$part" = captioner-experts ]; then
        python3 "$root/tests/examples/test_captioner_experts.py" mpirun examples/captioner/captioner \
            every || failed=$?
    elif [ "$part" = captioner-images ]; then
        python3 "$root/tests/examples/captioner_images.py" mpirun examples/captioner/captioner || failed=$?
    else
        parts+=("$part")
    fi
done
[ ${#parts[@]} -eq 0 ] ||
    python3 "$root/tests/oracle/oracle_suite.py" mpirun tests/oracle/mimo-oracle "${parts[@]}" ||
    failed=$?
exit "$failed"
