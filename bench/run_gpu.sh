#!/usr/bin/env bash
# Everything that is measured on the GPUs of one machine, in one go.
#
#   bench/run_gpu.sh BUILD FOLDER [RANKS]
#
# BUILD is a release build with CUDA. FOLDER gets nccl.jsonl and nccl_graph.jsonl (nccl_bench
# without and with --graph), torch_seed.jsonl and xla_reshard.jsonl (the peers, where PyTorch and
# JAX are installed), dispatch*.jsonl (a dispatch beside other ways to experts: in a stream, in graphs, with bf16
# sums, and of few tokens in graphs), nodes.jsonl (what the walk by nodes hides of exchanges) and
# torch_experts.jsonl (those ways in PyTorch),
# torch_bench.jsonl and torch_compiled.jsonl (bridges through PyTorch),
# balance_bench.jsonl and balance.txt (steps of a balanced encoder), overlap_bench.jsonl and overlap.txt (what
# mb.Overlap hides of expert exchanges), train_experts.txt and train_experts-overlap.txt (the losses of
# examples/torch/train.py without and with --overlap, on 2 GPUs, for SAMPLES), hf.txt (a Qwen3-VL, where
# transformers is installed), pipeline*.json and .txt (the captioner's stages, on RANKS and on 2 x RANKS/2),
# lora.txt (lora_bench: what an adapter saves), table.txt (what is wanted beside what was reached) and
# bench.png. RANKS is the number of GPUs, an even one (default: 4). MPIRUN and PYTHON name other programs
# than mpirun and python3. MEGATRON names a folder with Megatron-LM: without it, that peer is left out.
# SAMPLES names the captioner's samples (captioner --image-size 128 --prepare): without it, no pipelines.
set -euo pipefail

usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

[ $# -ge 2 ] || usage
bench=$(cd -- "$(dirname -- "$0")" && pwd)
build=$1 folder=$2 ranks=${3:-4}
mpirun=${MPIRUN:-mpirun} python=${PYTHON:-python3}
program=$build/bench/nccl_bench
[ -x "$program" ] || { echo "run_gpu.sh: no $program: build with -Dcuda=enabled" >&2 && exit 2; }
mkdir -p "$folder"
rm -f "$folder"/{nccl,nccl_graph,dispatch{,_graph,_narrow,_small},nodes,torch_{seed,experts,bench,compiled},xla_reshard}.jsonl # of an earlier run
rm -f "$folder"/{balance,overlap}_bench.jsonl
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# measure NAME COMMAND...: write the command's lines of JSON to FOLDER/NAME.jsonl. Where a command
# fails, the others still run. The table says what is missing.
measure() {
    local name=$1
    shift
    echo "$name: $*" >&2
    "$@" >"$folder/$name.jsonl" || echo "run_gpu.sh: $name failed ($?)" >&2
}

# has MODULE: whether Python can import it.
has() {
    "$python" -c "import $1" 2>/dev/null && return
    echo "run_gpu.sh: $python has no $1: no such peer" >&2
    return 1
}

# pipelines NAME ARGUMENT...: the five lists of pipeline_bench.py.
pipelines() {
    local name=$1
    shift
    "$python" "$bench/pipeline_bench.py" "$build/examples/captioner/captioner" "$build/tools/mimo-plan" \
        --mpirun "$mpirun" --samples "$SAMPLES" --json "$folder/$name.json" "$@" | tee "$folder/$name.txt" ||
        echo "run_gpu.sh: pipeline_bench $* failed" >&2
}

measure nccl "$mpirun" -n "$ranks" "$program" --json --chunks
measure nccl_graph "$mpirun" -n "$ranks" "$program" --json --graph
experts=(--experts 256 --top-k 8 --hidden 7168)
dispatch=("$mpirun" -n "$ranks" "$build/bench/dispatch_bench" --device cuda --json --calls 20 "${experts[@]}")
measure dispatch "${dispatch[@]}" --tokens 4096
measure dispatch_graph "${dispatch[@]}" --tokens 4096 --graph
measure dispatch_narrow "${dispatch[@]}" --tokens 4096 --narrow
measure dispatch_small "${dispatch[@]}" --tokens 128 --narrow --graph
measure nodes "$mpirun" -n "$ranks" "$build/bench/nodes_bench" --device cuda --json --precision bf16 --hidden 4096 \
    --inner 2048 --experts 64 --top-k 4 --tokens 4096 --micro-batches 8
if has torch; then
    measure torch_seed "$mpirun" -n "$ranks" "$python" "$bench/peers/torch_seed.py"
    measure torch_experts "$mpirun" -n "$ranks" "$python" "$bench/peers/torch_experts.py" --tokens 4096 "${experts[@]}"
    on_all=(env PYTHONPATH="$bench/../python" MIMO_BRIDGE_LIBRARY="$build" "$python" -m
        torch.distributed.run --standalone --nproc-per-node "$ranks")
    on_two=("${on_all[@]}" --nproc-per-node 2) # which share its six experts evenly
    bridges=("${on_all[@]}" "$bench/torch_bench.py" ${MEGATRON:+--megatron "$MEGATRON"})
    measure torch_bench "${bridges[@]}"
    "${on_all[@]}" "$bench/balance_bench.py" --json "$folder/balance_bench.jsonl" | tee "$folder/balance.txt" ||
        echo "run_gpu.sh: balance_bench failed" >&2
    "${on_all[@]}" "$bench/overlap_bench.py" --graph --json "$folder/overlap_bench.jsonl" | tee "$folder/overlap.txt" ||
        echo "run_gpu.sh: overlap_bench failed" >&2
    for beside in '' --overlap; do # one curve, printed twice
        [ -n "${SAMPLES:-}" ] || break
        # shellcheck disable=SC2086 # none or one word
        "${on_two[@]}" "$bench/../examples/torch/train.py" "$SAMPLES" --experts 6 --micro-batches 2 --steps 20 $beside |
            tee "$folder/train_experts${beside#-}.txt" || echo "run_gpu.sh: train.py $beside failed" >&2
    done
    measure torch_compiled "${bridges[@]}" --modes compiled --case cp --seq 8192
    if has transformers; then
        "${on_all[@]}" "$bench/hf_bench.py" | tee "$folder/hf.txt" || echo "run_gpu.sh: hf_bench failed" >&2
    fi
fi
if [ -n "${SAMPLES:-}" ]; then
    pipelines "pipeline_pp$ranks" --stages "$ranks"
    [ "$ranks" = 2 ] || pipelines pipeline_pp2 --stages 2 --dp $((ranks / 2))
fi
if has jax; then
    measure xla_reshard "$python" "$bench/peers/xla_reshard.py" --ranks "$ranks"
fi
"$build/bench/lora_bench" --device cuda | tee "$folder/lora.txt" ||
    echo "run_gpu.sh: lora_bench failed" >&2
"$python" "$bench/plot_bench.py" "$folder" | tee "$folder/table.txt"
