#!/usr/bin/env bash
# bridge_life.sh MPIRUN PROGRAM: two ranks of the program under valgrind; no wrong access, nothing
# uninitialised that decides something, no memory lost. Skipped where valgrind is missing.
set -euo pipefail

here=$(dirname -- "${BASH_SOURCE[0]}")
command -v valgrind >/dev/null || { echo "skipped: no valgrind"; exit 77; }
# Open MPI may come with suppressions of its own.
theirs=/usr/share/openmpi/openmpi-valgrind.supp
suppressions=(--suppressions="$here/valgrind.supp")
[ ! -f "$theirs" ] || suppressions+=(--suppressions="$theirs")

# Deep stacks: the frame that a suppression names stands far from the allocation.
"$1" --oversubscribe -n 2 valgrind --quiet --error-exitcode=99 --num-callers=50 --leak-check=full \
    --errors-for-leak-kinds=definite --show-leak-kinds=definite "${suppressions[@]}" "$2"
