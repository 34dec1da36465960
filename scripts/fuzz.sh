#!/usr/bin/env bash
# Builds the fuzz targets of tests/fuzz with clang's libFuzzer, AddressSanitizer and
# UndefinedBehaviorSanitizer, and runs them one after the other.
#
#   scripts/fuzz.sh [target...]        default: all of tests/fuzz/corpus
#
# SECONDS_EACH: how long each target runs (default: 600).
# MIMO_BUILD: the build folder (default: build-fuzz in the source tree). Its fuzz-corpus/TARGET
# keeps the new inputs of a run for the next run. Its fuzz-findings keeps the inputs that broke a
# target.
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

build=${MIMO_BUILD:-$root/build-fuzz}
corpus=$root/tests/fuzz/corpus
install_packages test
command -v clang >/dev/null || fail "libFuzzer needs clang (Debian package clang)"
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(ls "$corpus")
for target in "${targets[@]}"; do
    [ -d "$corpus/$target" ] || fail "no target '$target'; there are: $(ls -C "$corpus")"
done

again=()
[ ! -f "$build/build.ninja" ] || again=(--reconfigure)
CC=clang meson setup "${again[@]}" "$build" "$root" -Dfuzz=true -Dmpi=enabled -Dcuda=disabled \
    -Db_sanitize=address,undefined -Db_lundef=false
ninja -C "$build" "${targets[@]/#/tests/fuzz/fuzz_}"

use_local_mpi
# An allocation that is too large returns NULL, as without a sanitizer.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export LSAN_OPTIONS="suppressions='$root/tests/support/lsan.supp':print_suppressions=0"
status=0
for target in "${targets[@]}"; do
    found=$build/fuzz-corpus/$target
    findings=$build/fuzz-findings
    mkdir -p "$found" "$findings"
    words=()
    [ ! -f "$root/tests/fuzz/$target.dict" ] || words=(-dict="$root/tests/fuzz/$target.dict")
    echo "== $target: ${SECONDS_EACH:-600} seconds"
    "$build/tests/fuzz/fuzz_$target" -max_total_time="${SECONDS_EACH:-600}" -timeout=10 \
        -print_final_stats=1 -verbosity=0 -artifact_prefix="$findings/$target-" \
        "${words[@]}" "$found" "$corpus/$target" || status=1
done
[ "$status" -ne 0 ] || echo "no findings"
exit "$status"
