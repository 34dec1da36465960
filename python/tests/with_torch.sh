#!/bin/sh
# Runs a Python program of this folder with a Python that has torch, on ranks or alone.
#
#   with_torch.sh MPIRUN RANKS PROGRAM [ARGUMENT...]    RANKS: 0 for a process without mpirun
#
# Python is that of MIMO_VENV, of the environment that scripts/torch_venv.sh made, or python3. Exit
# status 77 (skipped) where it has no torch, and with MIMO_TORCH=0.
mpirun=$1 ranks=$2
shift 2
if [ "${MIMO_TORCH:-1}" = 0 ]; then
    echo "skipped: MIMO_TORCH=0"
    exit 77
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/mimo-bridge
venv=${MIMO_VENV:-$cache/venv}
python=$venv/bin/python
# Megatron core, as scripts/torch_venv.sh unpacks it, where the caller has no other.
[ -n "${MIMO_MEGATRON-}" ] || MIMO_MEGATRON=$cache/megatron-core
# torchtitan, likewise.
[ -n "${MIMO_TORCHTITAN-}" ] || MIMO_TORCHTITAN=$cache/torchtitan
[ -x "$python" ] || python=python3
# Where torch's CUDA libraries are those of the system, the environment says where they lie.
[ ! -f "$venv/cuda_libraries" ] ||
    LD_LIBRARY_PATH=$(cat "$venv/cuda_libraries")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# Both outlive the build folder: without bytecode each rank compiles torch and Megatron-LM in 9 s, and
# mypy reads the types of torch in 20 s.
PYTHONPYCACHEPREFIX=$cache/bytecode
MYPY_CACHE_DIR=$cache/mypy
unset PYTHONDONTWRITEBYTECODE
# No vector code from torch.compile: for each vector extension of the processor it would start a Python
# that imports torch.
TORCHINDUCTOR_VEC_ISA_OK=0
export LD_LIBRARY_PATH PYTHONPYCACHEPREFIX MYPY_CACHE_DIR MIMO_MEGATRON MIMO_TORCHTITAN TORCHINDUCTOR_VEC_ISA_OK
if ! "$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))'; then
    echo "skipped: $python has no torch: scripts/torch_venv.sh makes an environment that has"
    exit 77
fi
if [ "$ranks" = 0 ]; then
    exec "$python" "$@"
fi
exec "$mpirun" --oversubscribe -n "$ranks" "$python" "$@"
