# What the scripts of this folder share. They source this file; it is not run.
# shellcheck shell=bash
set -euo pipefail

# The root of the source tree. The current folder does not matter.
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

# shellcheck source=scripts/packages.sh
. "$root/scripts/packages.sh"

# configure_and_build DIR MESON-OPTION...: configure with MPI, then build what changed. A folder that exists
# is configured again, because packages may have been installed since.
configure_and_build() {
    local build=$1
    shift
    local again=()
    [ ! -f "$build/build.ninja" ] || again=(--reconfigure)
    meson setup "${again[@]}" "$build" "$root" -Dmpi=enabled "$@" || fail "Meson could not configure $build"
    ninja -C "$build" || fail "the build in $build failed"
}

# Settings of Open MPI for one machine: root may run it, shared memory only, one BLAS thread for
# each rank.
use_local_mpi() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1} OMPI_MCA_btl=${OMPI_MCA_btl:-self,vader}
    export OPENBLAS_NUM_THREADS=1
}
