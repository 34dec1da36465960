#!/usr/bin/env bash
# installed_library.sh BUILD PROGRAM
# Installs under a folder of its own. Then compiles and runs a program by pkg-config, linked with
# the shared library and with the static one.
set -euo pipefail
build=$1
program=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$program" "$folder/program.c"

DESTDIR=$folder/"staging area" meson install -C "$build" --no-rebuild --quiet
prefix=$folder/"staging area"$(meson introspect "$build" --buildoptions |
    python3 -c 'import json, sys
print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
pc=$(find "$prefix" -name mimo-bridge.pc)
libraries=$(dirname "$(dirname "$pc")")
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
find "$prefix" \( -type f -o -type l \) -printf '%P\n' | sort

needs() { readelf -d "$1" | grep -q 'NEEDED.*libmimo-bridge'; }

# eval, as pkg-config escapes the blank in the prefix for a shell.
eval "cc -std=c11 -o \"\$folder/shared\" \"\$folder/program.c\" $(pkg-config --cflags --libs mimo-bridge)"
needs "$folder/shared" || { echo "not linked with the shared library"; exit 1; }
LD_LIBRARY_PATH=$libraries mpirun --oversubscribe -n 1 "$folder/shared"

# Remove the shared library, so that only the archive is left to link with.
rm "$libraries"/libmimo-bridge.so*
eval "cc -std=c11 -o \"\$folder/static\" \"\$folder/program.c\" $(pkg-config --static --cflags --libs mimo-bridge)"
if needs "$folder/static"; then echo "linked with the shared library"; exit 1; fi
mpirun --oversubscribe -n 1 "$folder/static"
