#!/bin/sh
# Compile what includes NCCL's headers against other versions of them. Nothing is linked or run.
#
#   scripts/nccl_headers.sh FOLDER...
#
# A FOLDER has nccl.h: include/ of an unpacked wheel of nvidia-nccl-cu13, say
#
#   pip download --no-deps nvidia-nccl-cu13==2.30.7 && unzip -q nvidia_nccl_cu13-*.whl
#   scripts/nccl_headers.sh nvidia/nccl/include
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
cuda=$(dirname "$(dirname "$nvcc")")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
[ $# -gt 0 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for folder; do
    version=$(sed -n 's/^#define NCCL_VERSION_CODE *//p' "$folder/nccl.h")
    for file in "$root"/src/comm/nccl/*.c; do
        cc -std=c11 -D_DEFAULT_SOURCE -DMIMO_WITH_CUDA -Wall -Wextra -Werror -fsyntax-only \
            -I"$folder" -I"$root/include" -I"$root/src" -I"$root" -isystem "$cuda/include" "$file"
    done
    for file in "$root"/src/comm/nccl/*.cu; do
        "$nvcc" -std=c++17 -gencode=arch=compute_90,code=sm_90 -Werror=all-warnings \
            -Xcompiler=-fPIC -I"$folder" -I"$root/include" -I"$root/src" -I"$root" -c "$file" -o "$out/kernel.o"
    done
    echo "NCCL $version: compiled"
done
