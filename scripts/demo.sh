#!/usr/bin/env bash
# Installs what is missing, builds, and trains the captioner on 8 MPI ranks: an encoder (tp=2, dp=4)
# and an LLM (tp=2, cp=2, dp=2) on the same ranks. No GPU needed.
#
#   scripts/demo.sh [captioner argument...]         learn the names of emoji; see --help
#   scripts/demo.sh lora [captioner argument...]    then the German names, with a LoRA adapter
#   scripts/demo.sh pipeline [captioner argument...]  with the LLM in two stages, which draw what they do
#   scripts/demo.sh same [captioner argument...]    20 steps on one rank and on eight: the same file
#   scripts/demo.sh survive [captioner argument...]  a rank is killed, seven go on, and the file is the same
#   scripts/demo.sh --help
#
# Pictures and the log of the steps go to out/ in the build folder. --out names another folder for
# both, --log another file for the log. The last lines of output say where they are.
#
# lora: the base learns the English names once. It is kept in $XDG_CACHE_HOME/mimo-bridge (default
# ~/.cache/mimo-bridge), one file for each set of arguments that its weights depend on. Then an
# adapter of rank 8 learns the German names while the base stays as it is. It goes to adapter/ beside
# the pictures. Both runs take the arguments; those of adapters and results count for the second.
#
# pipeline: the LLM has pp=2 and takes four micro-batches a step; the encoder works where its stages would wait.
# schedule.svg beside the pictures has the steps of both stages as planned, schedule_run.svg those of the last
# training step as they were.
#
# same: one rank, then eight under the grids above, each write a checkpoint, and cmp finds no difference. The
# first demo ends with it where it was given no arguments.
#
# survive: eight ranks train for 200 steps. They do so again, and rank 3 is killed after step 100. The other seven
# go back to what they have in memory and go on, in the same processes. Both runs write a checkpoint, and cmp finds
# no difference.
#
# Kernels for GPUs are built where an argument is --device cuda.
#
# MIMO_BUILD: the build folder (default: build-demo in the source tree).
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

build=${MIMO_BUILD:-$root/build-demo}
captioner=$build/examples/captioner/captioner
lora=false same=false survive=false
stages=()
case ${1:-} in
--help)
    sed -n '/^#   scripts/,/^# MIMO_BUILD/s/^# \{0,1\}//p' "$0"
    if [ -x "$captioner" ]; then
        exec "$captioner" --help
    fi
    echo "Once a demo was built, this prints the captioner's arguments, too."
    exit
    ;;
same)
    same=true
    shift
    ;;
survive)
    survive=true
    shift
    ;;
lora)
    lora=true
    shift
    ;;
pipeline)
    stages=("--llm=tp=2,cp=1,dp=2,pp=2" --micro-batches=4)
    shift
    ;;
esac

# sort_arguments ARGUMENT...: as FLAG=VALUE, into three lists of a lora demo. On grids and device the
# weights of the base depend by no more than rounding.
sort_arguments() {
    base_arguments=() key_arguments=() adapter_arguments=()
    local word
    while [ $# -gt 0 ]; do
        word=$1
        shift
        case $word in
        --help | --usage | --version) exec "$captioner" "$word" ;;
        *=* | --sp | --lora-rslora | --adapter-other-base | --same-bits | --log-hashes | --recompute | --balance | --overlap | --survive) ;; # may stand without a value
        --*) [ $# -eq 0 ] || { word+="=$1" && shift; } ;;
        esac
        adapter_arguments+=("$word")
        case $word in
        --base=* | --resume=* | --prepare=* | --samples=*)
            fail "lora makes its own base and samples: ${word%%=*} does not go with it"
            ;;
        --lora-* | --adapter* | --merge=* | --names=* | --out=* | --log=* | --log-hashes* | --save=*) ;;
        --encoder=* | --llm=* | --sp | --device=* | --progress=*) base_arguments+=("$word") ;;
        *) base_arguments+=("$word") key_arguments+=("$word") ;;
        esac
    done
}

# A short name for what the weights of the base depend on: the program's version, its arguments, those of
# this script, and the files that it learns from, by size and time.
base_key() {
    local word files=(/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf /usr/share/unicode/emoji/emoji-test.txt)
    for word in "${key_arguments[@]}"; do
        [ ! -f "${word#*=}" ] || files+=("${word#*=}")
    done
    {
        "$captioner" --version
        printf '%s\n' "${sizes[@]}" "${training[@]}" "${key_arguments[@]}"
        stat -L -c '%n %s %Y' "${files[@]}" 2>/dev/null || true
    } | sha256sum | cut -c 1-16
}

# Write the German names, and leave a file alone that has them: the samples made of it stay good.
write_names() {
    python3 "$root/scripts/emoji_names.py" de >"$1.new" || fail "there are no German names"
    if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
}

# demo_lora ARGUMENT...
demo_lora() {
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/mimo-bridge base names
    sort_arguments "$@"
    mkdir -p "$cache"
    base=$cache/base-$(base_key).safetensors
    names=$cache/names-de.txt
    write_names "$names"
    if [ -f "$base" ]; then
        echo "The base has learned the English names before: $base"
    else
        echo "The base learns the English names."
        "${launch[@]}" "${sizes[@]}" "${training[@]}" "${progress[@]}" "${base_arguments[@]}" "--save=$base"
    fi
    # "all": other words ask for another head too. With the default targets the loss ends higher.
    echo "An adapter learns the German names; the base stays as it is."
    exec "${launch[@]}" "${sizes[@]}" "${care[@]}" --steps=6000 --lr=0.01 "--names=$names" "--base=$base" \
        --lora-rank=8 --lora-targets=all "--adapter-out=$out/adapter" "${defaults[@]}" "${adapter_arguments[@]}"
}

# quietly FILE COMMAND...: what it prints goes to the file, and is shown where it fails.
quietly() {
    local file=$1
    shift
    "$@" >"$file" 2>&1 || {
        cat "$file" >&2
        fail "$1 failed"
    }
}

# demo_same ARGUMENT...: the same steps on one rank and on eight, and whether their files are the same.
demo_same() {
    local one=$out/one.safetensors eight=$out/eight.safetensors
    local steps=("${sizes[@]}" --steps=20 "--same-bits=8,4" "$@")
    mkdir -p "$out"
    echo "One rank: 20 steps."
    quietly "$out/one.txt" mpirun -n 1 "$captioner" --encoder=tp=1,dp=1 --llm=tp=1,cp=1,dp=1 "${steps[@]}" "--save=$one"
    echo "Eight ranks: the same steps."
    quietly "$out/eight.txt" "${launch[@]}" --encoder=tp=2,dp=4 --llm=tp=2,cp=2,dp=2 "${steps[@]}" "--save=$eight"
    grep -A 2 '^8 ranks' "$out/eight.txt"
    cmp "$one" "$eight" || fail "$one and $eight differ"
    echo "the same $(stat -c %s "$one") bytes: cmp $one $eight"
}

# kill_after STEP RANK: of the launch in the background, once the log has that step.
kill_after() {
    until grep -qs "^{\"step\":$1," "$out/survived.jsonl"; do
        kill -0 "$!" 2>/dev/null || return 0 # it has failed, and says so itself
        sleep 0.1
    done
    echo "Step $1: rank $2 is killed."
    kill -KILL "$(cat "$out/pid.$2")"
}

# demo_survive ARGUMENT...: the same steps twice, the second time without a rank that is killed.
demo_survive() {
    local whole=$out/whole.safetensors survived=$out/survived.safetensors
    local steps=("${sizes[@]}" --steps=200 "--same-bits=8,2" "$@")
    # shellcheck disable=SC2016 # each rank's shell expands them
    local told=(bash -c 'echo $$ >"$0.$OMPI_COMM_WORLD_RANK" && exec "$@"' "$out/pid" "$captioner")
    mkdir -p "$out"
    rm -f "$out/survived.jsonl" "$out"/pid.*
    echo "Eight ranks: 200 steps."
    quietly "$out/whole.txt" "${launch[@]}" "${steps[@]}" "--save=$whole"
    echo "Eight ranks: the same steps."
    MIMO_DEADLINE_MS=5000 mpirun --enable-recovery -n 8 --oversubscribe "${told[@]}" "${steps[@]}" --survive \
        --save-memory=25 "--save=$survived" "--log=$out/survived.jsonl" >"$out/survived.txt" 2>&1 &
    kill_after 100 3
    wait "$!" || true # mpirun says nothing of who died
    rm -f "$out"/pid.*
    grep -E '^captioner: (of 8 ranks|generation)' "$out/survived.txt" || {
        cat "$out/survived.txt" >&2
        fail "nobody went on"
    }
    cmp "$whole" "$survived" || fail "$whole and $survived differ"
    echo "the same $(stat -c %s "$whole") bytes: cmp $whole $survived"
}

install_packages demo
cuda=disabled
[[ " $* " != *" --device cuda "* && " $* " != *" --device=cuda "* ]] || cuda=auto
configure_and_build "$build" --buildtype=release -Dtests=false -Dpython=disabled "-Dcuda=$cuda"

out=$build/out
before=
for argument in "$@"; do
    case "$before $argument" in
    "--out "*) out=$argument ;;
    *" --out="*) out=${argument#--out=} ;;
    esac
    before=$argument
done

[ -x "$captioner" ] ||
    fail "the captioner was not built: libopenblas-dev is missing ('scripts/packages.sh demo' installs it)"

# Under mpirun the program writes to a pipe. Only this script can see whether stderr is a terminal.
progress=()
[ ! -t 2 ] || progress=(--progress=bar)
# The caller's arguments follow these and override them.
defaults=("--out=$out" "--log=$out/steps.jsonl" "${progress[@]}")

# As much as two slow cores do in a few minutes; docs/demo.md says what else was tried. The run ends with the step
# at which the loss of held-out pictures was lowest.
sizes=("--hidden=96" "--layers=2,2")
care=("--evaluate-every=100")
training=("${care[@]}" --steps=3000 --lr=0.003 --weight-decay=0.3)

use_local_mpi
launch=(mpirun -n 8 --oversubscribe "$captioner")
if $lora; then demo_lora "$@"; fi
if $same; then
    demo_same "$@"
    exit
fi
if $survive; then
    demo_survive "$@"
    exit
fi
"${launch[@]}" "${sizes[@]}" "${training[@]}" "${stages[@]}" "${defaults[@]}" "$@"
cores=$(nproc)
if [ ${#stages[@]} -gt 0 ] && [ "$cores" -lt 8 ]; then
    echo "8 ranks shared $cores cores: schedule_run.svg shows who waited for a core, not what the schedule saves."
elif [ $# -eq 0 ]; then
    echo
    demo_same
fi
