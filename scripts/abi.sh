#!/usr/bin/env bash
# Compares the binary interface of the libraries of a build with the stored description, tests/abi/*.abi.
#
#   scripts/abi.sh BUILD             compare: what differs, and exit status 1; 77 (skipped) where it can't
#   scripts/abi.sh --update BUILD    store the description of this build, for a change that is wanted
#   scripts/abi.sh --self-test       see that changes of a small library are noticed
#
# BUILD is a folder that Meson configured and built with gcc on x86-64, with Open MPI and debugging
# information. What <mimo/nccl.h> declares is left out, so builds with and without CUDA compare. Needs abidiff (Debian: abigail-tools). docs/versions.md says what may change.
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

skip() {
    echo "skipped: $*"
    exit 77
}

# Not described: what the libraries share in private, what only some builds have, and the C library's FILE.
private=$({
    sed -n '/^MIMO_BRIDGE_PRIVATE/,$p' "$root/src/mimo-bridge.map.in" | sed -nE 's/^ +(mimo_.*);/\1/p'
    sed -nE 's/^MIMO_API .*\b(mimo_[a-z_]+)\(.*/\1/p' "$root/include/mimo/nccl.h"
} | paste -sd'|')
cat >"$folder/private.abignore" <<END
[suppress_function]
  symbol_name_regexp = ^($private)\$
  drop = true
[suppress_variable]
  symbol_name_regexp = ^($private)\$
  drop = true
[suppress_type]
  name = _IO_FILE
  drop = true
END

# describe LIBRARY HEADERS: its functions, and the types in HEADERS that they use.
describe() {
    abidw --headers-dir "$2" --drop-private-types --exported-interfaces-only --no-show-locs \
        --no-comp-dir-path --no-corpus-path --no-elf-needed --no-parameter-names \
        --no-write-default-sizes --type-id-style hash --suppressions "$folder/private.abignore" "$1"
}

# compare DESCRIPTION LIBRARY HEADERS: print what differs, additions and new names included. Two
# descriptions are compared, because abidiff takes types without a location for private ones.
compare() {
    describe "$2" "$3" >"$folder/now.abi"
    abidiff --harmless "$1" "$folder/now.abi"
}

# planted TEXT [RESULT]: a library made from a header of one line, with a function that returns RESULT.
planted() {
    echo "$1" >"$folder/include/planted.h"
    printf '#include "planted.h"\n%s\n' "${2:-int} planted(const struct planted *p) { return p->b; }" |
        gcc -g -shared -fPIC -I"$folder/include" -x c -o "$folder/planted.so" -
}

self_test() {
    local function='int planted(const struct planted *);' text
    must_differ() {
        ! compare "$folder/planted.abi" "$folder/planted.so" "$folder/include" >/dev/null ||
            { echo "not noticed: $1" && exit 1; }
    }
    mkdir "$folder/include"
    planted "struct planted { int a, b; }; $function"
    describe "$folder/planted.so" "$folder/include" >"$folder/planted.abi"
    compare "$folder/planted.abi" "$folder/planted.so" "$folder/include"
    for text in "struct planted { int a, more, b; }; $function" "struct planted { int a, b, more; }; $function" \
        "struct planted { int renamed, b; }; $function" "struct planted { int a; long b; }; $function" \
        "struct planted { int a, b; }; int added(void); int added(void) { return 0; } $function"; do
        planted "$text"
        must_differ "$text"
    done
    planted 'struct planted { int a, b; };' long
    must_differ "a function that returns long"
}

command -v abidiff >/dev/null || skip "no abidiff: scripts/packages.sh installs abigail-tools"
update=
case "${1:-}" in
--self-test)
    self_test
    exit
    ;;
--update)
    update=1
    shift
    ;;
esac
[ $# -eq 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ "$(uname -m)" = x86_64 ] || skip "the description is of x86-64"
status=0
for name in libmimo-bridge libmimo-bridge-mpi; do
    library=$1/$name.so stored=$root/tests/abi/$name.abi
    [ -f "$library" ] || skip "there is no $library"
    readelf -SW "$library" | grep ' \.debug_info' >/dev/null || skip "no debugging information in $library"
    # abidiff 2.2 finds no places of types in what clang 14 makes, so private ones look public.
    if readelf -p .comment "$library" | grep clang >/dev/null; then skip "the description is of a build with gcc"; fi
    if [ -n "$update" ]; then
        describe "$library" "$root/include/mimo" >"$stored"
    else
        compare "$stored" "$library" "$root/include/mimo" || status=1
    fi
done
[ "$status" -eq 0 ] || echo "If this is wanted: scripts/abi.sh --update $1, in the same commit."
exit "$status"
