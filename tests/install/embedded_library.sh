#!/usr/bin/env bash
# embedded_library.sh ROOT
# Builds and runs tests/install/embedding with the library as its Meson subproject.
set -euo pipefail
root=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cp -r "$root/tests/install/embedding" "$folder/parent"
cp "$root/tests/install/installed_program.c" "$folder/parent"
mkdir "$folder/parent/subprojects"
ln -s "$root" "$folder/parent/subprojects/mimo-bridge"

meson setup "$folder/build" "$folder/parent" -Dbuildtype=debug --force-fallback-for=mimo-bridge
ninja -C "$folder/build" embedding
meson test -C "$folder/build" --no-rebuild --print-errorlogs embedding
