#!/usr/bin/env bash
# Builds with the address and undefined-behaviour sanitizers and runs the unit tests, the MPI tests,
# those of faults and tools, and the corpora of the fuzz targets under them. Not the oracle, which is
# minutes of the same library, nor what compiles (headers, install). ThreadSanitizer has nothing to
# watch: nothing here starts a thread (Open MPI's own are not ours to judge). Valgrind is the suite
# of that name.
#
#   scripts/sanitize.sh [meson test argument...]
#                       (default: --suite unit --suite fuzz --suite mpi --suite fault --suite tools)
#
# MIMO_BUILD: the build folder (default: build-san in the source tree).
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

build=${MIMO_BUILD:-$root/build-san}
install_packages test
# A shared library gets the sanitizers from the program: it has undefined symbols until then.
configure_and_build "$build" --werror -Db_sanitize=address,undefined -Db_lundef=false

# A test's process reports leaks after its verdict: the reports are collected in files and judged
# here.
reports=$build/sanitizer-reports
rm -rf "$reports"
mkdir -p "$reports"
export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1:log_path='$reports/asan'"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:log_path='$reports/ubsan'"
export LSAN_OPTIONS="suppressions='$root/tests/support/lsan.supp':print_suppressions=0"
[ $# -gt 0 ] || set -- --suite unit --suite fuzz --suite mpi --suite fault --suite tools
status=0
meson test -C "$build" --no-rebuild --print-errorlogs --timeout-multiplier 4 "$@" || status=$?

python3 "$root/tests/support/sanitizer_reports.py" "$reports" || status=1
exit "$status"
