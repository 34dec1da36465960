#!/bin/sh
# Run the tests on GPUs that a build made, without Meson: one line a launch, then the totals.
#
#   run_all.sh [-k | -p | -s | -c TOOL] FOLDER [PATTERN]
#
# FOLDER is the build's tests/gpu: the executables and launches.txt, and ../oracle/mimo-oracle beside
# it. PATTERN, of grep, picks the lines of launches.txt to run. Launches of more ranks than this
# machine has GPUs are left out. With -k they are kept, and skip visibly. With -p they alone run, on as
# many pretended hosts as they need (pretend_host.sh). With -s all run, and ranks share the GPUs: the
# host stays one, so that they write into each other's memory. That needs NCCL 2.30 or later and a
# running nvidia-cuda-mps-control. With -c the launches of one rank run under that tool of
# compute-sanitizer, NCCL's own kernels left out. Exit status 1 where one failed. With MIMO_TEST_STAGED=1 tests
# that send messages stage them.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none # otherwise lists that run side by side share two cores
export OPENBLAS_NUM_THREADS=1 NCCL_NVLS_ENABLE=0

set -f # arguments hold patterns of Criterion
wrapper=
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
large=leave_out
case $1 in
-k) large=keep && shift ;;
-p) large=pretend && shift ;;
-s) large=keep && shift && export NCCL_MULTI_RANK_GPU_ENABLE=1 ;;
-c) # errors of CUDA calls are results here: tests provoke some
    wrapper="compute-sanitizer --tool $2 --error-exitcode 99 --report-api-errors no"
    wrapper="$wrapper --kernel-name-exclude kns=nccl"
    gpus=1
    shift 2
    ;;
esac
if [ ! -r "$1/launches.txt" ]; then
    echo "usage: $0 [-k | -p | -s | -c TOOL] FOLDER [PATTERN]: no launches.txt in '$1'" >&2
    exit 2
fi
folder=$1
pattern=${2:-.}
log=$(mktemp)
list=$(mktemp)
trap 'rm -f "$log" "$list"' EXIT
grep -v '^#' "$folder/launches.txt" | grep -e "$pattern" >"$list"

launch() # ranks program argument...
{
    count=$1
    path=$folder/$2
    case $2 in
    *.py) # it starts its ranks itself
        tested=$folder/$3
        shift 3
        timeout 600 python3 "$path" mpirun "$tested" --gpus "$@"
        return
        ;;
    *.sh)
        timeout 300 sh "$path" "$folder/$3" "$count"
        return
        ;;
    esac
    shift 2
    set -- "$path" "$@"
    [ $large != pretend ] || set -- "$folder/pretend_host.sh" "$gpus" "$@"
    # shellcheck disable=SC2086 # several words
    timeout 300 mpirun --oversubscribe -n "$count" $wrapper "$@"
}

passed=0 failed=0 skipped=0 left_out=0
while read -r ranks program arguments; do
    fits=no
    [ "$ranks" -gt "$gpus" ] || fits=yes
    case $large/$fits in
    leave_out/no) left_out=$((left_out + 1)) && continue ;;
    pretend/yes) continue ;;
    esac
    begin=$(date +%s.%N)
    # shellcheck disable=SC2086 # several arguments
    launch "$ranks" "$program" $arguments >"$log" 2>&1 </dev/null
    status=$?
    seconds=$(echo "$begin $(date +%s.%N)" | awk '{ printf "%.1f", $2 - $1 }')
    case $status in
    0) passed=$((passed + 1)) verdict=PASS ;;
    77) skipped=$((skipped + 1)) verdict=SKIP ;;
    *) failed=$((failed + 1)) verdict=FAIL ;;
    esac
    echo "$verdict ${program##*/} $arguments on $ranks, $seconds s"
    if [ $verdict = FAIL ]; then
        echo "    exit status $status; the end of its log:"
        tail -n 25 "$log" | sed 's/^/    /'
    fi
done <"$list"
[ "$left_out" = 0 ] || echo "$left_out launches need more than the $gpus GPUs here"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ $((passed + skipped)) -gt 0 ]
