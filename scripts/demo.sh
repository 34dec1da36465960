#!/usr/bin/env bash
# Installs what is missing, builds, and trains the captioner on 8 MPI ranks: an encoder (tp=2, dp=4)
# and an LLM (tp=2, cp=2, dp=2) on the same ranks. No GPU needed.
#
#   scripts/demo.sh [captioner argument...]     see --help
#
# Pictures and the log of the steps go to out/ in the build folder. --out names another folder for
# both, --log another file for the log. The last lines of output say where they are.
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
# The caller's arguments follow these and override them. 1200 steps take a few minutes on two slow
# cores.
defaults=("--steps=1200" "--out=$out" "--log=$out/steps.jsonl")

[ -x "$build/examples/captioner/captioner" ] ||
    fail "the captioner was not built: libopenblas-dev is missing ('scripts/packages.sh demo' installs it)"

# Under mpirun the program writes to a pipe. Only this script can see whether stderr is a terminal.
[ ! -t 2 ] || defaults+=(--progress=bar)

use_local_mpi
exec mpirun -n 8 --oversubscribe "$build/examples/captioner/captioner" "${defaults[@]}" "$@"
