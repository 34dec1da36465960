#!/usr/bin/env bash
# Proves that every check of the library has a test that fails without it. It builds the library
# with a switch for each check. Then it switches the checks off, one at a time, and runs the unit
# and MPI tests in which the check reports an error (tests/checks/prove_checks.py). A check that no
# test misses must be in tests/checks/survivors.txt, with the reason. Takes some minutes on 2 cores.
# The exit status is 0 only where the survivors are those of the list.
#
#   scripts/checks.sh [word...]    only checks with one of these words in file name or sentence
#
# MIMO_BUILD: the build folder (default: build-checks in the source tree). Its
# check-logs/killers.json names the test that fails without each check.
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

build=${MIMO_BUILD:-$root/build-checks}
install_packages test
configure_and_build "$build" --werror -Dcuda=disabled -Dc_args=-DMIMO_TEST_CHECKS

exec python3 -B "$root/tests/checks/prove_checks.py" "$root" "$build" "$@"
