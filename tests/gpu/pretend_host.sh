#!/bin/sh
# A rank of a pretended host: `mpirun -n 8 pretend_host.sh 2 PROGRAM ...` runs PROGRAM on 4 hosts of
# 2 GPUs each, whatever machine this is. To NCCL they are hosts: ranks of different ones may share
# a GPU, and speak over its network. It tests what several machines do; its times mean nothing.
export NCCL_HOSTID="pretended-$((OMPI_COMM_WORLD_RANK / $1))"
shift
exec "$@"
