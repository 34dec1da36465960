#!/usr/bin/env bash
# Runs those cases of the Python package that take too long for the suite torch, on 2 ranks: dynamic
# shapes under torch.compile's own backend. The exit status is 0 only where all passed.
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
exec "$root/python/tests/with_torch.sh" mpirun 2 "$root/python/tests/rank_runner.py" --long "$@"
