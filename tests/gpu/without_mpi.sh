#!/bin/sh
# without_mpi.sh PROGRAM RANKS
# Runs a program that starts its own ranks, and sees that the loader opens no MPI library for it.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
LD_DEBUG=libs LD_DEBUG_OUTPUT=$folder/opened "$1" "$2"
status=$?
if ! grep -q libnccl "$folder"/opened.*; then
    echo "the loader's log does not name NCCL"
    exit 1
fi
if grep -E 'lib(mpi|mpich|open-rte|open-pal)\b' "$folder"/opened.*; then
    echo "the program opens MPI"
    exit 1
fi
exit $status
