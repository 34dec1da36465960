#!/usr/bin/env bash
# readme_program.sh README SHARED-LIBRARY MPI-SHARED-LIBRARY
# Compiles the C program of README.md as printed, runs it as the README says, compares the output.
set -euo pipefail
readme=$1
library=$(realpath "$2")
mpi_library=$(realpath "$3")
root=$(dirname "$readme")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The lines between ```c and the next ```, and those of the block that begins with "$ mpirun".
awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' "$readme" >"$folder/program.c"
awk '/^\$ mpirun/ { on = 1; next } /^```/ { on = 0 } on' "$readme" >"$folder/expected"
grep -q main "$folder/program.c" || { echo "no program in $readme"; exit 1; }
grep -q rank "$folder/expected" || { echo "no output in $readme"; exit 1; }

read -r -a mpi < <(pkg-config --cflags --libs ompi-c)
cc -std=c11 -Wall -Wextra -Wpedantic -Werror -I "$root/include" -o "$folder/program" \
    "$folder/program.c" "$mpi_library" "$library" "${mpi[@]}"
export LD_LIBRARY_PATH=${library%/*}
mpirun -n 8 --oversubscribe "$folder/program" | sort >"$folder/got"
diff "$folder/expected" "$folder/got"

# With a wrong number of ranks there is one sentence and a failure, and no hang.
if mpirun -n 6 --oversubscribe "$folder/program" >"$folder/got" 2>&1; then
    echo "6 ranks were accepted"
    exit 1
fi
grep -q 'grid has ranks \[0, 8), the communicator has 6 ranks' "$folder/got"
