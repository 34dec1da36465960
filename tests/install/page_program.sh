#!/usr/bin/env bash
# page_program.sh ROOT PAGE SHARED-LIBRARY MPI-SHARED-LIBRARY
# Compiles the C blocks of a page as one program, runs it as the page says, and compares what it prints.
set -euo pipefail
root=$(realpath "$1")
page=$(realpath "$2")
library=$(realpath "$3")
mpi_library=$(realpath "$4")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# The lines between ```c and the next ```; each block that begins with "$ mpirun" is a file.
awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' "$page" >program.c
awk '/^\$ mpirun/ { on = 1; file = "run" ++n } /^```/ { on = 0 } on { print >file }' "$page"
grep -q main program.c || { echo "no program in $page"; exit 1; }
[ -f run1 ] || { echo "no run of the program in $page"; exit 1; }

read -r -a mpi < <(pkg-config --cflags --libs ompi-c)
cc -std=c11 -Wall -Wextra -Wpedantic -Werror -I "$root/include" -o program program.c "$mpi_library" "$library" \
    "${mpi[@]}"
export LD_LIBRARY_PATH=${library%/*}
for run in run*; do
    read -r _ command <"$run"
    tail -n +2 "$run" >expected
    grep -q . expected || { echo "no output of '$command' in $page"; exit 1; }
    bash -o pipefail -c "$command" >got
    diff expected got
done

# With a wrong number of ranks there is one sentence and a failure, and no hang.
read -r _ command <run1
if bash -o pipefail -c "${command/-n 8/-n 6}" >got 2>&1; then
    echo "6 ranks were accepted"
    exit 1
fi
grep -q 'grid has ranks \[0, 8), the communicator has 6 ranks' got
