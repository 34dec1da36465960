#!/usr/bin/env bash
# manual.sh DOXYGEN DOXYFILE FOLDER
# Writes the manual of the public headers to FOLDER/html and FOLDER/man. Warnings are errors.
set -euo pipefail
rm -rf "$3/html" "$3/man"
"$1" "$2"
# Each public name has a page, which shows that of its header. Fields and folders need none, and the
# headers' pages get a name that no other library has.
pages=$3/man/man3
find "$pages" -type f ! -iname 'mimo_*' ! -name '*.h.3' -delete
sed -i -E 's,^\.so man3/([a-z]+)\.h\.3,.so man3/mimo_\1.h.3,' "$pages"/*
for page in "$pages"/*.h.3; do mv "$page" "$pages/mimo_${page##*/}"; done
