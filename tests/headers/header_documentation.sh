#!/usr/bin/env bash
# header_documentation.sh ROOT MPI-PACKAGE HEADER...
# clang's -Wdocumentation over each public header; 77 (skipped) without clang.
set -euo pipefail
root=$1 package=$2
shift 2
command -v clang >/dev/null || {
    echo "no clang: the comments are not checked"
    exit 77
}
mpi=()
[ -z "$package" ] || read -r -a mpi < <(pkg-config --cflags "$package" | sed 's/-I/-isystem /g')

check() {
    clang -x c -std=c11 -fsyntax-only -Wdocumentation -Werror -DMIMO_EXPERIMENTAL -I "$root/include" "${mpi[@]}" "$@"
}

# First see that the check can fail.
if check - 2>/dev/null <<<$'/** \\param b no such parameter */\nvoid f(int a);'; then
    echo "clang does not notice a wrong comment"
    exit 1
fi
status=0
for header in "$@"; do
    check - <<<"#include \"$header\"" || status=1
done
exit "$status"
