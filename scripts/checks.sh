#!/usr/bin/env bash
# Proves that every check of the library has a test that fails without it: builds the library with a
# switch for each check, switches one after the other off, and runs the unit and MPI tests in which
# it fails (tests/checks/prove_checks.py). What survives must be in tests/checks/survivors.txt, with
# the reason. Some minutes on 2 cores; the exit status is 0 only where all came out as listed.
#
#   scripts/checks.sh [word...]    only checks with one of these words in file name or sentence
#
# MIMO_BUILD: the build folder (default: build-checks in the source tree). What fails without which
# check is in check-logs/killers.json there.
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

build=${MIMO_BUILD:-$root/build-checks}
install_packages test
configure_and_build "$build" --werror -Dcuda=disabled -Dc_args=-DMIMO_TEST_CHECKS

exec python3 -B "$root/tests/checks/prove_checks.py" "$root" "$build" "$@"
