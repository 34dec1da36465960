#!/usr/bin/env bash
# installed_library.sh BUILD CUDA-ROOT PLANNER MPI-PROGRAM
# Installs under a folder of its own. Then compiles and runs programs by pkg-config, linked with the
# shared libraries and with the static ones, and by CMake. CUDA-ROOT and MPI-PROGRAM are '' where the build has no
# CUDA, or no Open MPI.
set -euo pipefail
build=$1 cuda=$2 planner=$3 mpi=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$planner" "$folder/planner.c"
[ -z "$mpi" ] || cp "$mpi" "$folder/mpi.c"

fail() {
    echo "$*"
    exit 1
}

DESTDIR=$folder/"staging area" meson install -C "$build" --no-rebuild --quiet
prefix=$folder/"staging area"$(meson introspect "$build" --buildoptions |
    python3 -c 'import json, sys
print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
pc=$(find "$prefix" -name mimo-bridge.pc)
libraries=$(dirname "$(dirname "$pc")")
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
find "$prefix" \( -type f -o -type l \) -printf '%P\n' | sort

# CUDA lies where NVIDIA puts it, unless the user says where.
mimo_pkg_config() { pkg-config ${cuda:+"--define-variable=cudadir=$cuda"} "$@"; }
# compile NAME PKG-CONFIG-ARGUMENT...: eval, as pkg-config escapes the blank in the prefix for a shell.
compile() {
    local name=$1
    shift
    eval "cc -std=c11 -o \"\$folder/$name\" \"\$folder/${name%_*}.c\" $(mimo_pkg_config "$@")"
}
needs() { readelf -d "$1" | grep "NEEDED.*$2" >/dev/null; }

# No path of this machine: only the prefix of the files, and NVIDIA's own.
if grep -HE '[=IL ]/' "$PKG_CONFIG_PATH"/mimo-bridge*.pc | grep -v 'cudadir=/usr/local/cuda$'; then
    fail "a pkg-config file names a path of this machine"
fi
if pkg-config --print-requires --print-requires-private mimo-bridge | grep .; then
    fail "mimo-bridge requires other packages"
fi

# A program that needs no MPI opens none.
compile planner_shared --cflags --libs mimo-bridge
LD_LIBRARY_PATH=$libraries LD_DEBUG=libs LD_DEBUG_OUTPUT=$folder/opened "$folder/planner_shared"
grep -q 'libmimo-bridge\.so' "$folder"/opened.* || fail "the loader's log does not name the library"
if grep -E 'lib(mpi|mpich|open-rte|open-pal)\b' "$folder"/opened.*; then
    fail "a program without MPI opens MPI"
fi

# With nccl.h in reach, <mimo/nccl.h> needs nothing else.
if [ -n "$cuda" ]; then
    echo '#include <mimo/nccl.h>' >"$folder/nccl.c"
    eval "cc -std=c11 -c -o \"\$folder/nccl.o\" \"\$folder/nccl.c\" $(mimo_pkg_config --cflags mimo-bridge)"
fi

if [ -n "$mpi" ]; then
    compile mpi_shared --cflags --libs mimo-bridge-mpi
    needs "$folder/mpi_shared" libmimo-bridge-mpi || fail "not linked with the shared library"
    LD_LIBRARY_PATH=$libraries mpirun --oversubscribe -n 1 "$folder/mpi_shared"

    # A host that opens the libraries by itself finds one core library, in either order.
    for order in '' -mpi; do
        python3 - "$libraries/libmimo-bridge$order.so" "$libraries" <<'END'
import ctypes
import sys

ctypes.CDLL(sys.argv[1])
mpi = ctypes.CDLL(sys.argv[2] + "/libmimo-bridge-mpi.so")
core = ctypes.CDLL(sys.argv[2] + "/libmimo-bridge.so")
core.mimo_last_error.restype = ctypes.c_char_p
status = mpi.mimo_bootstrap_from_mpi(None, None)
said = core.mimo_last_error().decode()
assert status == 1 and "mpi is NULL" in said, (status, said)
END
    done

    # The loader refuses a backend library of another release.
    version=$(pkg-config --modversion mimo-bridge)
    LC_ALL=C sed "s/MIMO_BRIDGE_PRIVATE_$version/MIMO_BRIDGE_PRIVATE_X${version#?}/" \
        "$libraries/libmimo-bridge-mpi.so" >"$libraries/libmimo-bridge-other.so"
    if python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$libraries/libmimo-bridge-other.so" \
        2>"$folder/said"; then
        fail "a backend library of another release was loaded"
    fi
    grep -q 'MIMO_BRIDGE_PRIVATE_X.* not found' "$folder/said" || fail "$(cat "$folder/said")"
fi

# CMake finds the same libraries, and refuses another minor version.
if command -v cmake >/dev/null; then
    mkdir "$folder/cmake"
    cat >"$folder/cmake/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.18)
project(programs C)
find_package(mimo-bridge ${VERSION} REQUIRED)
add_executable(planner ../planner.c)
target_link_libraries(planner mimo-bridge::mimo-bridge)
if(MPI)
  add_executable(mpi ../mpi.c)
  target_link_libraries(mpi mimo-bridge::mimo-bridge-mpi)
endif()
END
    in_cmake() { cmake -S "$folder/cmake" -B "$folder/cmake/build" -DCMAKE_PREFIX_PATH="$prefix" -DMPI="$mpi" "$@"; }
    in_cmake -DVERSION="$(pkg-config --modversion mimo-bridge)" >"$folder/said" || fail "$(cat "$folder/said")"
    cmake --build "$folder/cmake/build" >"$folder/said" || fail "$(cat "$folder/said")"
    "$folder/cmake/build/planner"
    [ -z "$mpi" ] || mpirun --oversubscribe -n 1 "$folder/cmake/build/mpi"
    rm -r "$folder/cmake/build"
    if in_cmake -DVERSION=0.1 >"$folder/said" 2>&1; then fail "CMake took this version for 0.1"; fi
else
    echo "left out: cmake is missing"
fi

# Remove the shared libraries, so that only the archives are left to link with.
rm "$libraries"/libmimo-bridge*.so*
compile planner_static --static --cflags --libs mimo-bridge
"$folder/planner_static"
if [ -n "$mpi" ]; then
    compile mpi_static --static --cflags --libs mimo-bridge-mpi
    if needs "$folder/mpi_static" libmimo-bridge; then fail "linked with the shared library"; fi
    mpirun --oversubscribe -n 1 "$folder/mpi_static"
fi
