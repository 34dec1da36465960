#!/usr/bin/env bash
# Measures how much of the core library the unit and MPI tests run. Fails below 92% of the lines or
# 80% of the branches. Builds in a folder of its own, without optimisation. The counters of all
# processes of a launch add up in the files beside the objects.
#
#   scripts/coverage.sh [gcovr argument...]    such as --html-details coverage/index.html
#
# MIMO_BUILD: the build folder (default: build-cov in the source tree).
# MIMO_RUN=0: do not run the tests; judge the counters of the last run.
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

# Counts include, src, grid and bridge, in the library and in its copy with hooks for tests.
# In this build that copy has no mutations (tests/meson.build). Each exclusion has its reason:
options=(
    --filter "$root/include/" --filter "$root/src/" --filter "$root/grid/"
    --filter "$root/bridge/"
    # These files need a GPU. This build has none of them; tests/gpu/run_all.sh tests them.
    --exclude '.*/(nccl|cuda)_.*'
)
gcovr --root "$root" "${options[@]}" --sort-percentage --print-summary --fail-under-line 92 \
    --fail-under-branch 80 "$@" "$build"
