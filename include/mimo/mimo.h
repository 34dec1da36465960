/*
 * mimo-bridge: one header for the core library. A program that communicates also includes a
 * backend: <mimo/mpi.h> or <mimo/nccl.h>.
 */
#ifndef MIMO_MIMO_H
#define MIMO_MIMO_H

#include <mimo/alignment.h>
#include <mimo/balance.h>
#include <mimo/bridge.h>
#include <mimo/buffer.h>
#include <mimo/comm.h>
#include <mimo/dispatch.h>
#include <mimo/dtype.h>
#include <mimo/env.h>
#include <mimo/gradient.h>
#include <mimo/grid.h>
#include <mimo/log.h>
#include <mimo/op.h>
#include <mimo/pairing.h>
#include <mimo/partition.h>
#include <mimo/plan.h>
#include <mimo/route.h>
#include <mimo/schedule.h>
#include <mimo/status.h>
#include <mimo/survivors.h>
#include <mimo/tensor.h>
#include <mimo/transport.h>
#include <mimo/version.h>

#endif
