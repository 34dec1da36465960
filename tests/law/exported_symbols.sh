#!/usr/bin/env bash
# exported_symbols.sh ROOT CORE-SHARED CORE-STATIC MPI-SHARED MPI-STATIC HEADER...
# What the libraries show is what the headers declare and what the symbol maps list. HEADERs are the
# public ones of this build. Without MPI its libraries are ''.
set -euo pipefail
root=$1 core=$2 core_static=$3 mpi=$4 mpi_static=$5
shift 5

status=0
complain() {
    printf '%s:\n%s\n' "$1" "$2"
    status=1
}

# same WHAT-A WHAT-B A B: two sorted lists of names are equal.
same() {
    local only
    only=$(comm -23 <(echo "$3") <(echo "$4"))
    [ -z "$only" ] || complain "$1, but not $2" "$only"
    only=$(comm -13 <(echo "$3") <(echo "$4"))
    [ -z "$only" ] || complain "$2, but not $1" "$only"
}

# declared MACRO PART HEADER...: the names that headers mark with a macro, functions and objects. PART
# is 1 for those that only MIMO_EXPERIMENTAL declares, and 0 for all others.
declared() {
    local macro=$1 part=$2
    shift 2
    [ $# -gt 0 ] || return 0
    cat "$@" | awk -v macro="^$macro " -v part="$part" '
        /^#ifdef MIMO_EXPERIMENTAL/ { inside = 1 } /^#endif/ { inside = 0 }
        inside == part && $0 ~ macro { on = 1 }
        on { text = text " " $0 } on && /;/ { print text; text = ""; on = 0 }' |
        sed -E 's/MIMO_PRINTF\([^)]*\)//; s/^[^(;]*\b(mimo_[a-z0-9_]+) *[(;].*/\1/' | sort -u
}

# listed MAP NODE: the names that a symbol map gives to a node.
listed() {
    awk -v node="^$2" '$0 ~ node { on = 1; next } /^}/ { on = 0 } /local:/ { on = 0 }
        on && /;/ { gsub(/[ ;]/, ""); print }' "$1" | sort -u
}

# shown LIBRARY NODE: the names that a shared library shows under a node.
shown() { nm -D --defined-only "$1" | sed -nE "s/^[0-9a-f]* [A-Z] ([^@]*)@@$2.*/\1/p" | sort -u; }

mapfile -t all < <(find "$root/include/mimo" -name '*.h' ! -name mpi.h)
mapfile -t private < <(find "$root"/{src,grid,layout,plan,move,bridge,dispatch} -name '*.h')
built=()
for header in "$@"; do [[ $header == */mpi.h ]] || built+=("$header"); done
map=$root/src/mimo-bridge.map.in
public=$(declared MIMO_API 0 "${built[@]}")
[ "$(wc -l <<<"$public")" -gt 90 ] || complain "too few functions found in the headers" "$public"

same "declared in a public header" "shown by $(basename "$core")" \
    "$public" "$(shown "$core" MIMO_BRIDGE_[0-9])"
same "declared in a public header" "public in $(basename "$map")" \
    "$(declared MIMO_API 0 "${all[@]}")" "$(listed "$map" MIMO_BRIDGE_[0-9])"
same "declared as experimental" "shown by $(basename "$core") as experimental" \
    "$(declared MIMO_API 1 "${built[@]}")" "$(shown "$core" MIMO_BRIDGE_EXPERIMENTAL)"
same "declared as experimental" "experimental in $(basename "$map")" \
    "$(declared MIMO_API 1 "${all[@]}")" "$(listed "$map" MIMO_BRIDGE_EXPERIMENTAL)"
backend=$(declared MIMO_BACKEND_API 0 "${private[@]}")
same "marked MIMO_BACKEND_API" "private in $(basename "$map")" \
    "$backend" "$(listed "$map" MIMO_BRIDGE_PRIVATE)"
same "marked MIMO_BACKEND_API" "shown by $(basename "$core") as private" \
    "$backend" "$(shown "$core" MIMO_BRIDGE_PRIVATE)"
if readelf -d "$core" | grep 'NEEDED.*libmpi'; then complain "needs MPI" "$core"; fi

if [ -n "$mpi" ]; then
    map=$root/src/comm/mpi/mimo-bridge-mpi.map
    public=$(declared MIMO_API 0 "$root/include/mimo/mpi.h")
    same "declared in <mimo/mpi.h>" "public in $(basename "$map")" \
        "$public" "$(listed "$map" MIMO_BRIDGE_MPI_[0-9])"
    same "declared in <mimo/mpi.h>" "shown by $(basename "$mpi")" \
        "$public" "$(shown "$mpi" MIMO_BRIDGE_MPI_[0-9])"
    used=$(nm -D --undefined-only "$mpi" | sed -nE 's/.* U (.*)@MIMO_BRIDGE_PRIVATE.*/\1/p' | sort -u)
    same "marked MIMO_BACKEND_API" "used by $(basename "$mpi")" "$backend" "$used"
fi

for library in "$core" ${mpi:+"$mpi"}; do
    foreign=$(nm -D --defined-only "$library" | awk '$2 != "A" && $3 !~ /^mimo_.*@@MIMO_BRIDGE_/')
    [ -z "$foreign" ] || complain "$(basename "$library") shows foreign names" "$foreign"
done
# nvcc gives the contents of an unnamed namespace global names, unique to the file. The headers of NVTX
# define weak, hidden ones, which every library that includes them has.
for library in "$core_static" ${mpi_static:+"$mpi_static"}; do
    foreign=$(nm -g --defined-only "$library" |
        awk 'NF == 3 && !($2 ~ /[WV]/ && $3 ~ /[Nn]vtx/) { print $3 }' |
        grep -vE '^mimo_|_GLOBAL__N__[0-9a-f]{8}_' || true)
    [ -z "$foreign" ] || complain "$(basename "$library") shows foreign names" "$foreign"
done
exit "$status"
