/*
 * The store: the parameters of one module. Values, gradients and Adam moments lie in flat arenas.
 * Parameters of one gradient rule lie together, which gives few buckets and few reductions. A
 * frozen parameter has a value and nothing else: no gradient, no moments, no bucket. nn_initial.h
 * says what values a store begins with.
 *
 * Over pipeline stages every stage lists all parameters of the module, in one order, and holds its
 * own ones (nn_params_set_stage). The same holds for experts, which several ranks share. So a
 * parameter has one index on all ranks, all have the same buckets, and what is added over all
 * parameters is added in the order of the module.
 */
#ifndef MIMO_NN_NN_PARAMS_H
#define MIMO_NN_NN_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/gradient.h>

#include "train/nn/exchange/nn_exchange.h"
#include "train/nn/ops/nn_real.h"
#include "train/nn/ops/nn_runtime.h"
#include "train/nn/params/nn_placement.h"

typedef struct nn_params nn_params;

typedef enum nn_rule {
    NN_REPLICATED = 0, /* the same elements and the whole gradient on every tp rank */
    NN_SHARDED = 1,    /* every tp rank holds its slice along one dimension */
    NN_PARTIAL = 2,    /* the same elements on every tp rank, a part of the gradient on each */
    /* The same three of an expert's parameters, over the etp ranks that share the expert. Ranks
     * along ep have other experts, those along edp the same ones for other tokens. The buckets name
     * the grid NN_EXPERT_GRID, which mimo_gradient_add_grid brings, with data "edp", shard "ep". */
    NN_EXPERT_REPLICATED = 3,
    NN_EXPERT_SHARDED = 4,
    NN_EXPERT_PARTIAL = 5,
} nn_rule;
enum { NN_RULES = 6 };
#define NN_EXPERT_GRID "experts"

typedef enum nn_init {
    NN_INIT_ZEROS = 0,
    NN_INIT_ONES = 1,
    NN_INIT_NORMAL = 2,  /* mean 0, standard deviation `std` */
    NN_INIT_UNIFORM = 3, /* in (-std, std] */
} nn_init;

/** A parameter to add. Shapes are global. A vector has ndim 1 and shape[1] = 1. */
typedef struct nn_param_desc {
    const char *name; /* unique in the store; copied */
    int ndim;         /* 1 or 2 */
    int64_t shape[2];
    nn_rule rule;
    int shard_dim;      /* of a sharded one: the dimension that is split into equal slices */
    bool decay;         /* weight decay applies */
    nn_packing packing; /* of the rows; only files in another order need it */
    bool adapter;       /* trained also where the store is frozen */
    bool untrained; /* frozen in any store: its layer alone moves it, unless the store is frozen */
    bool elsewhere; /* ranks beside this one hold it: another's expert */
    nn_init init;
    double std; /* of NN_INIT_NORMAL; the bound of NN_INIT_UNIFORM */
} nn_param_desc;

/** One parameter as this rank holds it. A checkpoint that saves whole tensors needs nothing more.
 * The local tensor is contiguous and row-major. Pointers point into the runtime's memory, and are
 * NULL before seal. nn_params_read and nn_params_write copy from and to host memory. */
typedef struct nn_param {
    char *name;
    int ndim;
    nn_placement placement; /* the global shape, and how tp, or etp, cuts it */
    int rank;               /* of this rank among those that it is cut over */
    int64_t local[2];       /* this rank's shape */
    int64_t start;          /* first global index along the cut; 0 where it is not sharded */
    int64_t count;          /* local elements */
    nn_rule rule;
    nn_packing packing;
    bool decay, frozen, adapter;
    bool moved; /* a frozen one whose layer changes its value in each step: a router's bias */
    int stage;  /* that holds it */
    bool held;  /* this rank does; otherwise local and count are 0, and it has no array here */
    nn_init init;
    double std;
    nn_real *value, *grad, *m, *v; /* of a frozen one: the value alone */
    int64_t *sums; /* the fixed order: the gradient's sums, of which nn_params_settle makes grad */
} nn_param;

/** This rank's coordinates in the grid of experts: t along etp, x along ep. It has a t-th part of
 *  each expert [x * L, (x + 1) * L). Zeroed, it has all. */
typedef struct nn_expert_coords {
    int etp_rank, etp_size, ep_rank, ep_size;
} nn_expert_coords;

typedef struct nn_params_desc {
    const char *name; /* such as "encoder"; names of buckets begin with it; copied */
    mimo_side module; /* MIMO_SRC or MIMO_DST, for the buckets */
    int tp_rank, tp_size;
    int pp_rank, pp_size; /* the stage, of this number; 0 counts as 1 */
    nn_expert_coords experts;
    uint64_t seed;
    bool frozen;               /* only adapters are trained */
    bool blank;                /* initial values are 0: the caller writes all of them */
    const nn_runtime *runtime; /* where the layers of this store compute; NULL: on the host */
    /* Of a runtime in the fixed order (nn_order.h); 0 counts as 1. `shards` is V. Of each sequence
     * this rank holds `pairs` of the C pairs of chunks: C / cp. */
    int64_t shards, pairs;
} nn_params_desc;

/** The arrays of a parameter, each of `count` elements. */
typedef enum nn_part {
    NN_VALUE = 0,
    NN_GRAD = 1,
    NN_MOMENT_M = 2,
    NN_MOMENT_V = 3,
} nn_part;

/** Create an empty store. It also sets OpenBLAS to one thread in this process, because ranks share
 *  cores. Local. The caller owns *out. Errors: MIMO_ERR_ARGUMENT, MIMO_ERR_MEMORY. */
mimo_status nn_params_create(nn_params **out, const nn_params_desc *desc);

/** Release the store with everything in it. NULL is fine. */
void nn_params_destroy(nn_params *params);

/** Add a parameter. *index is its number: 0, 1, 2, ... in the order of adding. Errors:
 *  MIMO_ERR_ARGUMENT (tp does not divide shape[shard_dim]; the sentence has both numbers),
 *  MIMO_ERR_EXISTS, MIMO_ERR_STATE (sealed), MIMO_ERR_MEMORY. */
mimo_status nn_params_add(nn_params *params, const nn_param_desc *desc, int *index);

/** The stage that holds the parameters which are added from now on; before the first call stage 0.
 *  Errors: MIMO_ERR_ARGUMENT (no such stage). Local. */
mimo_status nn_params_set_stage(nn_params *params, int stage);

/** Reserve the arenas and set initial values. Gradients and moments are 0. After it nothing can be
 *  added. Blocking. Errors: MIMO_ERR_STATE (sealed), MIMO_ERR_MEMORY. */
mimo_status nn_params_seal(nn_params *params);
bool nn_params_sealed(const nn_params *params);

/** Set the values to the initial ones again, the moments and the number of steps to 0. Blocking.
 *  Errors: MIMO_ERR_STATE (not sealed, adapters merged), MIMO_ERR_MEMORY. */
mimo_status nn_params_reset(nn_params *params);

/** Number of parameters, and the one at `index`, in the order of adding. */
int nn_params_count(const nn_params *params);
const nn_param *nn_params_at(const nn_params *params, int index);

/** The index of the parameter `name`; -1 where there is none. */
int nn_params_find(const nn_params *params, const char *name);

/** Whether a parameter has that array; and the array, NULL where it has none. */
bool nn_param_has(const nn_param *param, nn_part part);
nn_real *nn_param_array(const nn_param *param, nn_part part);

/** Whether a step may change a parameter: the arrays of a trained one, the value of one that its
 *  layer moves. */
bool nn_param_changes(const nn_param *param);

/** Elements of the largest parameter on this rank; at least 1. */
int64_t nn_params_largest(const nn_params *params);

/** Whether any parameter is trained. Where none is, backward of the module has nothing to add. The
 *  same on all ranks. */
bool nn_params_trainable(const nn_params *params);

/** Copy one array of a parameter to or from host memory [count], for checkpoints. Read waits for
 *  the work enqueued before it. Write may only enqueue; `from` may be reused on return. Errors:
 *  MIMO_ERR_STATE (not sealed; a parameter of another stage; a part that a frozen parameter lacks;
 *  a value written while adapters are merged: unmerge would lose it), MIMO_ERR_ARGUMENT (no such
 *  parameter or part). */
mimo_status nn_params_read(const nn_params *params, int index, nn_part part, nn_real *to);
mimo_status nn_params_write(nn_params *params, int index, nn_part part, const nn_real *from);
/** This rank's array of a part, in the runtime's memory. Errors: those of nn_params_read. Local. */
mimo_status nn_params_array(nn_real **out, const nn_params *params, int index, nn_part part);

/** The runtime of the descriptor. Where that was NULL, the host's. */
const nn_runtime *nn_params_runtime(const nn_params *params);

/** In the fixed order: V, the parts that this rank has of each sum over tp, V / tp, and its pairs
 *  of chunks. In the fast order all are 1. */
int64_t nn_params_shards(const nn_params *params);
int64_t nn_params_parts(const nn_params *params);
int64_t nn_params_pairs(const nn_params *params);

int nn_params_tp_rank(const nn_params *params);
int nn_params_tp_size(const nn_params *params);
int nn_params_pp_rank(const nn_params *params);
int nn_params_pp_size(const nn_params *params);
const nn_expert_coords *nn_params_experts(const nn_params *params); /* sizes of 1 and more */

/** What the layers of this store exchanged: over tp, over the sequence's cp, and over the ranks
 *  that share experts. The caller may set the counts to zero. */
typedef struct nn_params_counts {
    nn_exchange_counts tp, cp, experts;
} nn_params_counts;
nn_params_counts *nn_params_exchanged(nn_params *params);

/** The buckets for mimo_gradient_finalize and mimo_gradient_norm: at most NN_RULES, without those
 *  that are empty on all stages. Over stages they are sharded over pp as well. In the fixed order
 *  they are of MIMO_I64 (nn_gradients_finish). Every rank has the same number of them in the same
 *  order. The store owns them. Errors: MIMO_ERR_STATE (not sealed). */
mimo_status nn_params_buckets(const nn_params *params, const mimo_gradient_bucket **buckets,
                              int *n);

/** Set all gradients to 0. Before seal it does nothing. */
mimo_status nn_params_zero_grad(nn_params *params);

/** In the fixed order gradients are sums in fixed point, until this makes them gradients, times
 *  1 / max(tokens, 1). After mimo_gradient_finalize; until the next nn_params_zero_grad. In the
 *  fast order it does nothing. Errors: MIMO_ERR_STATE (not sealed, settled already). */
mimo_status nn_params_settle(nn_params *params, int64_t tokens);
/** In the fixed order: check that gradients were settled (`what` begins the sentence), or that they
 *  were not yet. In the fast order both are MIMO_OK. Errors: MIMO_ERR_STATE. */
mimo_status nn_params_check_settled(const nn_params *params, const char *what);
mimo_status nn_params_check_unsettled(const nn_params *params);

/** Adapters that are merged into their weights: nn_lora_merge and nn_lora_unmerge count them. The
 *  check is for what needs the weights as they are trained; `what` begins its sentence. Errors:
 *  MIMO_ERR_STATE (some are merged). */
void nn_params_count_merged(nn_params *params, int change);
mimo_status nn_params_check_unmerged(const nn_params *params, const char *what);

/** The number of optimizer steps taken. A checkpoint saves it. */
int64_t nn_params_steps(const nn_params *params);
void nn_params_set_steps(nn_params *params, int64_t steps);

#endif
