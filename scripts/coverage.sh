#!/usr/bin/env bash
# Measures how much of the core library the unit and MPI tests run, and fails below 92% of the lines
# or 80% of the branches. Builds in a folder of its own, without optimisation; the counters of all
# processes of a launch add up in the files beside the objects.
#
#   scripts/coverage.sh [gcovr argument...]    such as --html-details coverage/index.html
#
# MIMO_BUILD: the build folder (default: build-cov in the source tree).
# MIMO_RUN=0: judge the counters that are there, without running the tests again.
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

build=${MIMO_BUILD:-$root/build-cov}
install_packages test
command -v gcovr >/dev/null || fail "gcovr is missing (Debian package gcovr)"

if [ "${MIMO_RUN:-1}" != 0 ]; then
    configure_and_build "$build" -Dbuildtype=debug -Db_coverage=true -Dcuda=disabled
    find "$build" -name '*.gcda' -delete
    meson test -C "$build" --no-rebuild --suite unit --suite mpi --timeout-multiplier 4
fi

# Counted: include, src, grid and bridge, as they are compiled into the library and into its copy
# with hooks for tests, which has no mutations here (tests/meson.build). Left out, with the reason:
options=(
    --filter "$root/include/" --filter "$root/src/" --filter "$root/grid/" --filter "$root/bridge/"
    # Layers of the examples and of the references: a library of its own, not the core.
    --exclude "$root/src/nn/"
    # Named by what they need, a GPU: not in this build, and tested by tests/gpu/run_all.sh.
    --exclude '.*/(nccl|cuda)_.*'
)
gcovr --root "$root" "${options[@]}" --sort-percentage --print-summary --fail-under-line 92 \
    --fail-under-branch 80 "$@" "$build"
