#!/usr/bin/env bash
# embedded_library.sh ROOT MPI
# Builds and runs tests/install/embedding with the library as its Meson subproject. MPI
# is the option that it is given: enabled or disabled. One architecture of GPUs, the oldest:
# scripts/test.sh compiles for others.
set -euo pipefail
root=$1 mpi=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cp -r "$root/tests/install/embedding" "$folder/parent"
cp "$root"/tests/install/installed_*.c "$folder/parent"
mkdir "$folder/parent/subprojects"
ln -s "$root" "$folder/parent/subprojects/mimo-bridge"

cd "$folder" # as library_without_mpi.sh
meson setup "$folder/build" "$folder/parent" -Dbuildtype=debug \
    --force-fallback-for=mimo-bridge -Dmimo-bridge:mpi="$mpi" -Dmimo-bridge:gpu_architectures=80
programs=(planner)
[ "$mpi" != enabled ] || programs+=(program)
ninja -C "$folder/build" "${programs[@]}"
meson test -C "$folder/build" --no-rebuild --print-errorlogs "${programs[@]/#/embedded }"
