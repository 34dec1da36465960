#!/usr/bin/env bash
# Installs what is missing, builds, and trains the captioner on 8 MPI ranks: an encoder (tp=2, dp=4)
# and an LLM (tp=2, cp=2, dp=2) on the same ranks. No GPU needed.
#
#   scripts/demo.sh [captioner argument...]     see --help
#
# Pictures and the log of the steps go to out/ in the build folder, or to the folder of --out; --log
# sends the log elsewhere. The last lines say where they are.
# MIMO_BUILD: the build folder (default: build-demo in the source tree).
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

build=${MIMO_BUILD:-$root/build-demo}
install_packages demo
configure_and_build "$build" --buildtype=release -Dtests=false

out=$build/out
before=
for argument in "$@"; do
    case "$before $argument" in
    "--out "*) out=$argument ;;
    *" --out="*) out=${argument#--out=} ;;
    esac
    before=$argument
done
# The caller's own come after these, and count. 1200 steps take a few minutes on two slow cores.
defaults=("--steps=1200" "--out=$out" "--log=$out/steps.jsonl")

[ -x "$build/examples/captioner/captioner" ] ||
    fail "the captioner was not built: libopenblas-dev is missing ('scripts/packages.sh demo' installs it)"

# mpirun hands the program a pipe: whether a person watches is known only here.
[ ! -t 2 ] || defaults+=(--progress=bar)

use_local_mpi
exec mpirun -n 8 --oversubscribe "$build/examples/captioner/captioner" "${defaults[@]}" "$@"
