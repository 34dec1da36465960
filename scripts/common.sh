# Shared by the scripts of this folder; sourced, not run.
# shellcheck shell=bash
set -euo pipefail

# The root of the source tree, from wherever the caller stands.
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

# shellcheck source=scripts/packages.sh
. "$root/scripts/packages.sh"

# configure_and_build DIR MESON-OPTION...: configure, again where packages may have come since, and
# build what changed.
configure_and_build() {
    local build=$1
    shift
    local again=()
    [ ! -f "$build/build.ninja" ] || again=(--reconfigure)
    meson setup "${again[@]}" "$build" "$root" "$@" || fail "Meson could not configure $build"
    ninja -C "$build" || fail "the build in $build failed"
}

# Open MPI on one machine: root allowed, shared memory only, one BLAS thread a rank.
use_local_mpi() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1} OMPI_MCA_btl=${OMPI_MCA_btl:-self,vader}
    export OPENBLAS_NUM_THREADS=1
}
