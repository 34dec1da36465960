#!/usr/bin/env bash
# The Debian packages of mimo-bridge, in one list, and their installation.
#
#   scripts/packages.sh [core|library|demo|test|docs|extra]   install what is missing (default: test)
#   scripts/packages.sh --list                           print the list
#
# Sourced by the other scripts of this folder for install_packages.
# MIMO_INSTALL=0: install nothing. The build then fails on what is missing.
set -euo pipefail

# package | who needs it | why
# Who: core (libmimo-bridge, without MPI); library (these as well: both libraries); demo (test needs
# these as well); test; extra (without it a test is skipped); docs (the site; without it its test is skipped).
packages='
gcc                     | core    | the C compiler
libc6-dev               | core    | C headers; gcc only recommends them
meson                   | core    | the build
ninja-build             | core    | what Meson drives
pkg-config              | core    | finds the libraries
libopenmpi-dev          | library | MPI headers; libmimo-bridge-mpi
openmpi-bin             | library | mpirun
libcjson-dev            | core    | JSON, written by mimo-plan
libopenblas-dev         | demo    | matrix products of the layers in train/nn
libfreetype-dev         | demo    | loads the emoji glyphs
libharfbuzz-dev         | demo    | shapes emoji sequences
libcairo2-dev           | demo    | draws the pictures
fonts-noto-color-emoji  | demo    | the images that the captioner learns from
unicode-data            | demo    | their names (emoji-test.txt)
unicode-cldr-core       | demo    | their German names (demo.sh lora)
fonts-dejavu-core       | demo    | letters in the pictures
libcriterion-dev        | test    | the test framework
libpng-dev              | test    | reads the pictures back
g++                     | test    | public headers as C++17
python3                 | demo    | reads the German names; the checks that read sources
python3-venv            | test    | the environment of the tests of the Python package
python3-yaml            | test    | reads the workflow
binutils                | test    | nm: which symbols the library shows
clang-format            | extra   | the form of C and CUDA sources; version 14
abigail-tools           | extra   | abidiff: the binary interface against the stored one
iproute2                | extra   | ip: the links between hosts in namespaces
valgrind                | extra   | watches the life of a bridge
yamllint                | extra   | looks over the workflow
gnuplot-nox             | extra   | bench/plot_bench.py draws with it
cmake                   | extra   | a program that finds the installed library by find_package
gcovr                   | extra   | scripts/coverage.sh
doxygen                 | docs    | reads the headers, for the site and the man pages
python3-sphinx          | docs    | makes the site: meson compile -C build docs
python3-myst-parser     | docs    | its pages are Markdown
python3-breathe         | docs    | the C interface on it
furo                    | docs    | its theme
clang                   | extra   | -Wdocumentation over the public headers; libFuzzer
'

# The packages of a purpose, one name on each line.
packages_for() {
    local purpose=$1 name who
    while IFS='|' read -r name who _; do
        name=${name// /} who=${who// /}
        case "$purpose:$who" in
        *:) ;;
        core:core | library:core | library:library | extra:extra | docs:docs) echo "$name" ;;
        demo:core | demo:library | demo:demo) echo "$name" ;;
        test:core | test:library | test:demo | test:test) echo "$name" ;;
        esac
    done <<<"$packages"
}

# The packages of a purpose that are not installed.
missing_packages() {
    local name
    packages_for "$1" | while read -r name; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || echo "$name"
    done
}

fail() {
    echo "$(basename -- "$0"): $*" >&2
    exit 1
}

# apt_get ARGUMENT...: run apt-get as root, without questions. Print its output only where it fails.
apt_get() {
    local sudo=() log status=0
    if [ "$(id -u)" -ne 0 ]; then
        sudo=(sudo)
        [ -t 0 ] || sudo=(sudo -n)
    fi
    log=$(mktemp)
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" </dev/null >"$log" 2>&1 || status=$?
    [ "$status" -eq 0 ] || tail -n 20 "$log" >&2
    rm -f "$log"
    return "$status"
}

# install_packages PURPOSE: core, library, demo, test, docs or extra.
install_packages() {
    [ "${MIMO_INSTALL:-1}" != 0 ] || return 0
    local missing extra=()
    type dpkg-query apt-get >/dev/null 2>&1 ||
        fail "this is not a Debian system (no apt-get): install what 'scripts/packages.sh --list'" \
            "names by other means, then run again with MIMO_INSTALL=0"
    mapfile -t missing < <(missing_packages "$1")
    [ "$1" != test ] || mapfile -t extra < <(missing_packages extra; missing_packages docs)
    local all=("${missing[@]}" "${extra[@]}")
    [ ${#all[@]} -gt 0 ] || return 0

    echo "Installing Debian packages: ${all[*]}"
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null ||
        fail "not root and no sudo: as root, run  apt-get install ${all[*]}"
    apt_get update || echo "apt-get update failed; trying with the package lists at hand" >&2
    if [ ${#missing[@]} -gt 0 ]; then
        apt_get install -y --no-install-recommends "${missing[@]}" ||
            fail "apt-get could not install ${missing[*]} (its last lines are above): is this" \
                "machine online, and may this user install packages?"
    fi
    if [ ${#extra[@]} -gt 0 ]; then
        apt_get install -y --no-install-recommends "${extra[@]}" ||
            echo "Going on without ${extra[*]}: the tests that need it are skipped" >&2
    fi
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    case "${1:-test}" in
    core | library | demo | test | docs | extra) install_packages "${1:-test}" ;;
    --list) sed '/^$/d' <<<"$packages" ;;
    *) fail "unknown argument '$1': core, library, demo, test, docs, extra or --list" ;;
    esac
fi
