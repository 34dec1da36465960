#!/usr/bin/env bash
# Installs what is missing, builds with warnings as errors and runs every test suite. The last line
# is "N passed, N failed, N skipped". The exit status is 0 only where nothing failed.
#
#   scripts/test.sh [meson test argument...]    such as --suite unit
#
# MIMO_BUILD: the build folder (default: build-test in the source tree).
# MIMO_TORCH=0: without PyTorch, which scripts/torch_venv.sh otherwise installs for the suite torch.
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

build=${MIMO_BUILD:-$root/build-test}
install_packages test
"$root/scripts/torch_venv.sh" || true # it has said why; the tests are skipped

# nvcc takes most of the build, so it compiles for the GPUs that are here, and for one architecture where
# there is none. The test of the embedded library compiles for the oldest.
gpus=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true)
gpus=$(grep -E '^[0-9]+\.[0-9]+$' <<<"$gpus" | tr -d . | sort -nu | paste -sd, || true)
configure_and_build "$build" --werror -Dgpu_architectures="${gpus:-90}"

log=$build/meson-logs/testlog.json
rm -f "$log"
status=0
meson test -C "$build" --no-rebuild --print-errorlogs "$@" || status=$?

# The log has one JSON object on each line. Meson's summary is not used: it counts timeouts and
# unexpected passes apart.
python3 - "$log" "$status" <<'END'
import json
import sys

log, status = sys.argv[1], int(sys.argv[2])
counts = {"passed": 0, "failed": 0, "skipped": 0}
kinds = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
try:
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            counts[kinds.get(json.loads(line)["result"], "failed")] += 1
except OSError:
    print("no test ran", file=sys.stderr)
    status = status or 1
print(", ".join(f"{number} {kind}" for kind, number in counts.items()))
sys.exit(1 if status or counts["failed"] else 0)
END
