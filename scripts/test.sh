#!/usr/bin/env bash
# Installs what is missing, builds with warnings as errors and runs every test suite. The last line
# is "N passed, N failed, N skipped". The exit status is 0 only where nothing failed.
#
#   scripts/test.sh [meson test argument...]    such as --suite unit
#
# MIMO_BUILD: the build folder (default: build-test in the source tree).
# MIMO_TORCH=0: without PyTorch, which scripts/torch_venv.sh otherwise installs for the suite torch.
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

build=${MIMO_BUILD:-$root/build-test}
install_packages test
"$root/scripts/torch_venv.sh" || true # it has said why; the tests are skipped

# nvcc takes most of the build, so it compiles for the GPUs that are here, and for one architecture where
# there is none. The test of the embedded library compiles for the oldest.
gpus=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true)
gpus=$(grep -E '^[0-9]+\.[0-9]+$' <<<"$gpus" | tr -d . | sort -nu | paste -sd, || true)
if [ -z "$gpus" ]; then
    # Kernels that nothing here runs are compiled for their errors and warnings alone.
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    if [[ $("$nvcc" --help 2>/dev/null) == *--Ofast-compile* ]]; then
        export NVCC_APPEND_FLAGS="${NVCC_APPEND_FLAGS:-} --Ofast-compile=max"
    fi
fi
configure_and_build "$build" --werror -Dgpu_architectures="${gpus:-90}"

log=$build/meson-logs/testlog.json
rm -f "$log"
status=0
meson test -C "$build" --no-rebuild --print-errorlogs "$@" || status=$?

python3 "$root/tests/support/count_results.py" "$log" "$status"
