#!/usr/bin/env bash
# Runs those cases of the Python package that take too long for the suite torch: dynamic shapes under
# torch.compile's own backend on 2 ranks, and on 4 ranks pipelines of Megatron-LM beside encoders, with many
# grids. The exit status is 0 only where all passed.
#
#   scripts/torch_long.sh [word...]    the long cases with a word in their names (default: all)
#
# MIMO_BUILD: the build folder (default: build-test in the source tree).
# MIMO_VENV: where PyTorch is, or will be (scripts/torch_venv.sh).
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

build=${MIMO_BUILD:-$root/build-test}
install_packages test
"$root/scripts/torch_venv.sh"
configure_and_build "$build" --werror

use_local_mpi
export MIMO_BRIDGE_LIBRARY=$build PYTHONPATH=$root/python
ran=0
for ranks in 2 4; do
    status=0
    "$root/python/tests/with_torch.sh" mpirun "$ranks" "$root/python/tests/rank_runner.py" --long "$@" || status=$?
    case $status in
    0) ran=1 ;;
    2) ;; # no case of these words on this number of ranks
    *) exit "$status" ;;
    esac
done
[ "$ran" = 1 ] || fail "no long case has these words: $*"
