#!/bin/sh
# Run the tests on GPUs that a build made, without Meson: one line a launch, then the totals.
#
#   run_all.sh [-k] FOLDER [PATTERN]
#
# FOLDER is the build's tests/gpu: the executables and launches.txt. PATTERN, of grep, picks the
# lines of launches.txt to run. Launches of more ranks than this machine has GPUs are left out,
# with -k kept (they skip by themselves, which is seen then). Exit status 1 where one failed.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_rmaps_base_oversubscribe=1
export OPENBLAS_NUM_THREADS=1 NCCL_NVLS_ENABLE=0

keep=0
[ "$1" = -k ] && keep=1 && shift
if [ ! -r "$1/launches.txt" ]; then
    echo "usage: $0 [-k] FOLDER [PATTERN]: no launches.txt in '$1'" >&2
    exit 2
fi
folder=$1
pattern=${2:-.}
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
log=$(mktemp)
list=$(mktemp)
trap 'rm -f "$log" "$list"' EXIT
grep -v '^#' "$folder/launches.txt" | grep -e "$pattern" >"$list"
passed=0 failed=0 skipped=0 left_out=0
while read -r program name ranks; do
    if [ "$keep" = 0 ] && [ "$ranks" -gt "$gpus" ]; then
        left_out=$((left_out + 1))
        continue
    fi
    begin=$(date +%s.%N)
    timeout 120 mpirun --oversubscribe -n "$ranks" "$folder/$program" --filter "$name" \
        >"$log" 2>&1 </dev/null
    status=$?
    seconds=$(echo "$begin $(date +%s.%N)" | awk '{ printf "%.1f", $2 - $1 }')
    case $status in
    0) passed=$((passed + 1)) verdict=PASS ;;
    77) skipped=$((skipped + 1)) verdict=SKIP ;;
    *) failed=$((failed + 1)) verdict=FAIL ;;
    esac
    echo "$verdict $name on $ranks, $seconds s"
    if [ $verdict = FAIL ]; then
        echo "    exit status $status; the end of its log:"
        tail -n 25 "$log" | sed 's/^/    /'
    fi
done <"$list"
[ "$left_out" = 0 ] || echo "$left_out launches need more than the $gpus GPUs here"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ $((passed + skipped)) -gt 0 ]
