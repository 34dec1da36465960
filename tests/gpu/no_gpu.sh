#!/bin/sh
# Stands for all launches on GPUs where Meson, when it configured, found none: a visible skip.
#
#   no_gpu.sh LAUNCHES
echo "no GPU here: $1 launches were not made"
exit 77
