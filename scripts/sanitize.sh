#!/usr/bin/env bash
# Builds with the address and undefined-behaviour sanitizers. Runs these suites under them: unit,
# mpi, fault, tools, and fuzz (the corpora of the fuzz targets). The oracle is left out: it would
# take minutes and runs the same library. So are suites that compile (headers, install).
# The suite valgrind runs Valgrind. With --threads it builds with ThreadSanitizer and runs the tests
# of threads (tests/threads), as the library starts no thread in the others.
#
#   scripts/sanitize.sh [meson test argument...]
#                       (default: --suite unit --suite fuzz --suite mpi --suite fault --suite tools)
#   scripts/sanitize.sh --threads
#
# MIMO_BUILD: the build folder (default: build-san in the source tree; build-tsan with --threads).
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

if [ "${1:-}" = --threads ]; then
    build=${MIMO_BUILD:-$root/build-tsan}
    install_packages test
    again=()
    [ ! -f "$build/build.ninja" ] || again=(--reconfigure)
    meson setup "${again[@]}" "$build" "$root" --werror -Db_sanitize=thread -Db_lundef=false \
        -Dexamples=false || fail "Meson could not configure $build"
    ninja -C "$build" thread_tests || fail "the build in $build failed"
    exec meson test -C "$build" --no-rebuild --print-errorlogs --suite threads
fi

build=${MIMO_BUILD:-$root/build-san}
install_packages test
# The program brings the sanitizers, so a shared library has undefined symbols when it is linked.
configure_and_build "$build" --werror -Db_sanitize=address,undefined -Db_lundef=false

# A process reports leaks when its tests have passed or failed, and most are Open MPI's. So a leak
# does not change the exit status. The reports go to files, and this script judges them. Any other
# error aborts.
reports=$build/sanitizer-reports
rm -rf "$reports"
mkdir -p "$reports"
export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1:abort_on_error=1"
ASAN_OPTIONS+=":log_path='$reports/asan'"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:log_path='$reports/ubsan'"
export LSAN_OPTIONS="suppressions='$root/tests/support/lsan.supp':print_suppressions=0:exitcode=0"
[ $# -gt 0 ] || set -- --suite unit --suite fuzz --suite mpi --suite fault --suite tools
status=0
meson test -C "$build" --no-rebuild --print-errorlogs --timeout-multiplier 4 "$@" || status=$?

python3 "$root/tests/support/sanitizer_reports.py" "$reports" || status=1
exit "$status"
