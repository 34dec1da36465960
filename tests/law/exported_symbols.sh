#!/usr/bin/env bash
# exported_symbols.sh SHARED STATIC HEADER...
# The libraries show only mimo_* names. The shared one shows every function of the public headers.
set -euo pipefail
shared=$1 static=$2
shift 2

status=0
complain() {
    printf '%s:\n%s\n' "$1" "$2"
    status=1
}

shown=$(nm -D --defined-only "$shared" | awk '{ print $3 }' | sort -u)
foreign=$(grep -v '^mimo_' <<<"$shown" || true)
[ -z "$foreign" ] || complain "the shared library shows foreign names" "$foreign"

# nvcc gives the contents of an unnamed namespace global names, unique to the file.
foreign=$(nm -g --defined-only "$static" | awk 'NF == 3 { print $3 }' |
    grep -vE '^mimo_|_GLOBAL__N__[0-9a-f]{8}_' || true)
[ -z "$foreign" ] || complain "the static library shows foreign names" "$foreign"

declared=$(cat "$@" | grep -A1 '^MIMO_API' | grep -oE '\bmimo_[a-z0-9_]+\(' | tr -d '(' | sort -u)
[ "$(wc -l <<<"$declared")" -gt 90 ] || complain "too few functions found in the headers" "$declared"
missing=$(comm -23 <(echo "$declared") <(echo "$shown"))
[ -z "$missing" ] || complain "declared in a public header, but not shown by the library" "$missing"
exit "$status"
