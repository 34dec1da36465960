#!/usr/bin/env bash
# Makes the virtual environment in which the tests of the Python package run, or leaves it as it is
# where it is there already: PyTorch for Python 3, mypy, safetensors, transformers, PEFT, and meson-python, with
# which pip builds the package. Fetches Megatron core and torchtitan, with whose classes they compare.
#
#   scripts/torch_venv.sh             all of that
#   scripts/torch_venv.sh --older     also an older transformers, in mimo-bridge/transformers-5.17.0 beside the
#                                     default environment: for scripts/torch_long.sh
#
# MIMO_VENV: where (default: mimo-bridge/venv in XDG_CACHE_HOME, or in ~/.cache).
# MIMO_MEGATRON: a folder with another Megatron-LM; then none is fetched.
# MIMO_TORCHTITAN: the same for torchtitan.
# MIMO_TORCH=0: do nothing. Exit status 1 where it can't be made: the tests are then skipped.
#
# PyTorch brings 2.7 GB of CUDA libraries. Where the system has those of CUDA 13, only what it lacks is
# fetched: 780 MB.
set -euo pipefail

[ "${MIMO_TORCH:-1}" != 0 ] || exit 0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/mimo-bridge
venv=${MIMO_VENV:-$cache/venv}
torch=torch==2.11.0
beside=(nvidia-nvshmem-cu13==3.4.5 nvidia-cufile==1.15.1.6 nvidia-cusparselt-cu13==0.8.0)
pure=(filelock typing_extensions sympy mpmath networkx jinja2 markupsafe fsspec numpy setuptools)
optional=(mypy safetensors pytest) # their tests are skipped without them
# So are those of transformers and PEFT. The two that need PyTorch come without what they need: pip would fetch what
# that lacks here.
beside_peft=(transformers==5.23.0 psutil)
peft=(accelerate==1.15.0 peft==0.21.2)
# What pip needs to build the package by what is here. It is not in the recipe: an environment that is there
# gets it too. An older pip takes one setup-args.
builder=("pip>=23.1" meson-python)
recipe="$torch ${beside[*]} ${pure[*]} ${optional[*]} ${beside_peft[*]} ${peft[*]}"

# What torch opens of CUDA 13, as the dynamic linker names it.
cuda=${CUDA_HOME:-/usr/local/cuda}/lib64
cuda_is_complete() {
    local name
    for name in cublas.so.13 cublasLt.so.13 cudart.so.13 cudnn.so.9 cufft.so.12 cupti.so.13 \
        curand.so.10 cusolver.so.12 cusparse.so.12 nccl.so.2 nvJitLink.so.13 nvrtc.so.13; do
        [ -e "$cuda/lib$name" ] || return 1
    done
}

imports() {
    LD_LIBRARY_PATH="$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$venv/bin/python" -c 'import torch' \
        2>/dev/null
}

# Megatron core, in a folder that with_torch.sh knows. Its wheel asks for Python 3.12; what the tests use
# of it runs on 3.11 as well.
megatron="megatron-core==0.19.2"
fetch_megatron() { [ -n "${MIMO_MEGATRON-}" ] || fetch_wheels megatron-core "$megatron"; }

# torchtitan, with whose token dispatcher the tests compare, and what that imports.
torchtitan=(torchtitan==0.3.0 spmd_types==0.2.3)
fetch_torchtitan() { [ -n "${MIMO_TORCHTITAN-}" ] || fetch_wheels torchtitan "${torchtitan[@]}"; }

# FOLDER WHEEL...: unpacked in a folder of the cache, without what they need.
fetch_wheels() {
    local folder=$cache/$1 wheel
    shift
    [ "$(cat "$folder/recipe" 2>/dev/null)" != "$*" ] || return 0
    rm -rf "$folder" "$folder.new" && mkdir "$folder.new" || return 1
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --python-version 3.12 \
        --only-binary=:all: --dest "$folder.new" "$@" || return 1
    for wheel in "$folder.new"/*.whl; do
        python3 -m zipfile -e "$wheel" "$folder.new" || return 1
    done
    rm "$folder.new"/*.whl
    echo "$*" >"$folder.new/recipe"
    mv "$folder.new" "$folder"
}

# The older transformers, with what it needs in other versions than the one of the environment does.
older=(transformers==5.17.0 huggingface-hub==1.33.0 httpx==0.28.1 httpcore==1.0.9 certifi==2026.1.4)
fetch_older() {
    local folder=$cache/transformers-5.17.0
    [ "$(cat "$folder/recipe" 2>/dev/null)" != "${older[*]}" ] || return 0
    rm -rf "$folder" && mkdir "$folder" || return 1
    python3 -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --target "$folder" \
        "${older[@]}" || return 1
    echo "${older[*]}" >"$folder/recipe"
}

mkdir -p "$cache" "$(dirname -- "$venv")"
exec 9>"$venv.lock"
flock 9 # another run may be making it
fetch_torchtitan || echo "${torchtitan[0]} could not be fetched: its tests are skipped" >&2
fetch_megatron || echo "$megatron could not be fetched: its tests are skipped" >&2
if [ "${1-}" = --older ]; then
    fetch_older || echo "${older[0]} could not be fetched: what runs over it is skipped" >&2
fi
if [ -x "$venv/bin/python" ] && [ ! -f "$venv/recipe" ] && imports ''; then
    exit 0 # the user's own
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >>"$log" 2>&1; }
# Few of the modules of transformers are ever imported: to compile all takes longer than to fetch them.
install_peft() {
    install --no-compile "${beside_peft[@]}" && install --no-compile --no-deps "${peft[@]}"
}
make_it() {
    python3 -m venv --clear "$venv" >>"$log" 2>&1 || return 1
    if cuda_is_complete && install --no-deps "$torch" "${beside[@]}" && install "${pure[@]}" &&
        imports "$cuda"; then
        echo "$cuda" >"$venv/cuda_libraries"
    else
        rm -f "$venv/cuda_libraries"
        install "$torch" numpy || return 1
    fi
    local package
    for package in "${optional[@]}"; do
        install "$package" || echo "$package could not be installed: its tests are skipped" >&2
    done
    install_peft || echo "peft could not be installed: its test is skipped" >&2
}
if [ "$(cat "$venv/recipe" 2>/dev/null)" != "$recipe" ]; then
    echo "Installing PyTorch in $venv"
    if ! make_it; then
        tail -n 20 "$log" >&2
        echo "PyTorch could not be installed in $venv: the tests of the Python package are skipped" >&2
        exit 1
    fi
    echo "$recipe" >"$venv/recipe"
fi
if [ "$(cat "$venv/builder" 2>/dev/null)" != "${builder[*]}" ]; then
    if install "${builder[@]}"; then
        echo "${builder[*]}" >"$venv/builder"
    else
        echo "${builder[*]} could not be installed: its test is skipped" >&2
    fi
fi
