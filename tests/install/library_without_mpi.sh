#!/usr/bin/env bash
# library_without_mpi.sh ROOT
# Configures without MPI, builds the library, the planner and the quick unit tests, and runs them.
set -euo pipefail
root=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" # CMake, which Meson asks, writes to the current folder: of two at once one fails

meson setup "$folder/build" "$root" -Dmpi=disabled -Dcuda=disabled -Dexamples=false \
    -Dbuildtype=plain -Dwerror=true >"$folder/log" || { cat "$folder/log" && exit 1; }
grep -A3 'Test suites without Open MPI' "$folder/log"
if grep -i 'mpi' "$folder/build/compile_commands.json" | grep -v no_mpi; then
    echo "a file of MPI is compiled, or its headers are in reach"
    exit 1
fi
units=(core grid pairing layout)
meson compile -C "$folder/build" mimo-bridge:shared_library mimo-plan "${units[@]/#/test_}" >"$folder/log" ||
    { cat "$folder/log" && exit 1; }
meson test -C "$folder/build" --no-rebuild "${units[@]}"
"$folder/build/tools/mimo-plan" --version
if readelf -d "$folder"/build/libmimo-bridge.so "$folder/build/tools/mimo-plan" | grep 'NEEDED.*mpi'; then
    echo "a program without MPI needs MPI"
    exit 1
fi
