#!/usr/bin/env bash
# Compares each C and CUDA source with what clang-format makes of it. Another version has other opinions, so
# only Debian 12's, 14, is asked.
#
#   formatted.sh ROOT           a line for each place that differs, and exit status 1; 77 (skipped) without it
#   formatted.sh --self-test    see that a place is noticed
set -euo pipefail

tool=$(command -v clang-format-14 || command -v clang-format || true)
[[ -n $tool && $("$tool" --version) == *"version 14."* ]] || {
    echo "skipped: no clang-format 14 (Debian: clang-format)"
    exit 77
}

check() {
    local root=$1 folder
    cd -- "$root"
    for folder in bench bridge examples grid include python src tests tools train; do
        [ ! -d "$folder" ] || find "$folder" -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0
    done | xargs -0 -P 2 -n 100 "$tool" --dry-run --Werror
}

if [ "$1" = --self-test ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cp -- "$(dirname -- "$0")/../../.clang-format" "$folder"
    mkdir "$folder/src"
    printf 'int main(void)\n{\n    return 0;\n}\n' >"$folder/src/right.c"
    (check "$folder") || exit 1
    printf 'int  main(void) {\n  return 0; }\n' >"$folder/src/wrong.c"
    ! (check "$folder") 2>/dev/null || { echo "a file in another style was not noticed"; exit 1; }
    exit
fi
check "$1"
