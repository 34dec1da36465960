#include "mutations.h"

#include <stdlib.h>
#include <string.h>

#include "core/mutation.h"
#include "oracle_options.h"

#define GRIDS(encoder_, llm_, ...)                        \
    {                                                     \
        .encoder = (encoder_), .llm = (llm_), __VA_ARGS__ \
    }
#define FAN_IN GRIDS("tp=2,dp=4", "tp=2,cp=2,dp=2", .executor = EXECUTOR_COLLECTIVE)
#define FAN_IN_SP GRIDS("tp=2,dp=4", "tp=2,cp=2,dp=2", .executor = EXECUTOR_COLLECTIVE, .sp = true)
#define FAN_OUT GRIDS("tp=4,dp=2", "tp=1,cp=2,dp=4", .executor = EXECUTOR_COLLECTIVE)
#define ROUTED GRIDS("tp=2,dp=4", "tp=2,cp=2,dp=2", .executor = EXECUTOR_ROUTED)
#define ROUTED_FAN_OUT GRIDS("tp=4,dp=2", "tp=1,cp=2,dp=4", .executor = EXECUTOR_ROUTED)
#define ZERO_COPY GRIDS("tp=2,dp=4", "tp=2,cp=2,dp=2", .executor = EXECUTOR_ZERO_COPY)
#define ADAPTERS \
    GRIDS("tp=2,dp=4", "tp=2,cp=2,dp=2", .executor = EXECUTOR_COLLECTIVE, .adapters = 4)
#define ADAPTERS_UNEQUAL \
    GRIDS("tp=2,dp=4", "tp=4,cp=1,dp=2", .executor = EXECUTOR_COLLECTIVE, .adapters = 4)
#define EXPERTS_BY(executor_, encoder_, llm_, adapters_, grid)                            \
    GRIDS(encoder_, llm_, .executor = (executor_), .adapters = (adapters_), .experts = 8, \
          .top_k = 2, .expert_grid = (grid))
#define EXPERTS(encoder_, llm_, adapters_, grid) \
    EXPERTS_BY(EXECUTOR_ROUTED, encoder_, llm_, adapters_, grid)
#define EXPERTS_PUSHED \
    EXPERTS_BY(EXECUTOR_ZERO_COPY, "tp=1,dp=2", "tp=1,cp=1,dp=2", 0, "etp=1,ep=2")
#define EXPERTS_ALONE EXPERTS("tp=1,dp=1", "tp=1,cp=1,dp=1", 0, "etp=1,ep=1")
#define EXPERTS_APART EXPERTS("tp=1,dp=2", "tp=1,cp=1,dp=2", 0, "etp=1,ep=2")
#define EXPERTS_APART_CP EXPERTS("tp=1,dp=2", "tp=1,cp=2,dp=1", 0, "etp=1,ep=2")
#define EXPERTS_COPIED EXPERTS("tp=1,dp=4", "tp=1,cp=1,dp=4", 0, "etp=1,ep=2")
#define EXPERTS_COPIED_TP EXPERTS("tp=1,dp=2", "tp=2,cp=1,dp=1", 0, "etp=1,ep=1")
#define EXPERTS_SHARED EXPERTS("tp=1,dp=2", "tp=2,cp=1,dp=1", 0, "etp=2,ep=1")
#define EXPERTS_COPIED_ADAPTED EXPERTS("tp=1,dp=4", "tp=1,cp=1,dp=4", 4, "etp=1,ep=2")
#define EXPERTS_ADAPTED EXPERTS("tp=1,dp=2", "tp=2,cp=1,dp=1", 4, "etp=2,ep=1")
#define EXPERTS_OF_ONE_RANK                                                          \
    GRIDS("tp=1,dp=2", "tp=1,cp=1,dp=2", .executor = EXECUTOR_ROUTED, .adapters = 4, \
          .adapted = "experts.5.up,experts.7.up", .experts = 8, .top_k = 2, .expert_grid = "ep=2")

#define STAGES(encoder_, llm_, ...) GRIDS(encoder_, llm_, .executor = EXECUTOR_ROUTED, __VA_ARGS__)
#define STAGES_2 STAGES("tp=1,dp=2", "pp=2", .schedule = {.kind = MIMO_SCHEDULE_1F1B})
#define STAGES_2_ZERO STAGES("tp=1,dp=2", "pp=2", .schedule = {.kind = MIMO_SCHEDULE_ZERO_BUBBLE})
#define STAGES_2_RING \
    STAGES("tp=1,dp=2", "pp=2", .schedule = {.kind = MIMO_SCHEDULE_INTERLEAVED, .chunks = 2})
#define STAGES_4 STAGES("tp=1,dp=4", "pp=4", .schedule = {.kind = MIMO_SCHEDULE_1F1B})

/* A forward beside a backward, by nodes. */
#define EXPERTS_PAIRED                                                                          \
    GRIDS("tp=1,dp=2", "tp=1,cp=1,dp=2", .executor = EXECUTOR_ROUTED, .experts = 8, .top_k = 2, \
          .expert_grid = "etp=1,ep=2", .schedule = {.overlap = true})

static const oracle_mutation table[] = {
    /* the bridge */
    {"gather-reversed", "the slots of a gather group are in reverse order", PHASE_BRIDGE, FAN_IN,
     true},
    {"no-slice", "a fan-out rank has no slice and keeps the whole batch", PHASE_RUN, FAN_OUT, true},
    {"no-cp-sum", "backward does not sum over cp", PHASE_ROWS_BACK, FAN_IN, true},
    {"cp-mean", "backward averages over cp", PHASE_ROWS_BACK, FAN_IN, true},
    {"sum-over-dp", "backward sums over dp x cp in place of cp", PHASE_ROWS_BACK, FAN_IN, true},
    {"first-class-only", "routed backward keeps one cp rank's part", PHASE_ROWS_BACK, ROUTED, true},
    {"row-before", "routed sends the row before, where a block begins behind a tile's first",
     PHASE_BRIDGE, ROUTED_FAN_OUT, true},
    {"sender-own-order", "routed sends rows in the order of the sender's tile", PHASE_BRIDGE,
     ROUTED, true},
    {"tensors-reversed", "a message's tensors are received in reverse order", PHASE_BRIDGE, ROUTED,
     true},
    {"class-behind", "routed adds the other cp ranks' parts one row behind their place",
     PHASE_ROWS_BACK, ROUTED, true},
    {"part-for-sum", "routed sends one cp rank's part on, in two rounds, and not the sum",
     PHASE_ROWS_BACK, ROUTED_FAN_OUT, true},
    {"push-to-self", "rows are pushed into the sender's own part of the buffer", PHASE_BRIDGE,
     ZERO_COPY, true},
    {"push-row-before", "a block behind a tile's first row is pushed one row before", PHASE_BRIDGE,
     ZERO_COPY, true},
    {"push-all-but-last", "the last block for each peer is not pushed", PHASE_BRIDGE, ZERO_COPY,
     true},
    {"last-addresses", "routed moves rows where the tensors of a call like this lay before",
     PHASE_BRIDGE, ROUTED, false},
    /* alignment and partition */
    {"sequence-major", "rows are taken as they lie, not sample-major", PHASE_ALIGNMENT, FAN_IN,
     false},
    {"contiguous-labels",
     "the labels' second chunk is the one behind the first, the rest is zigzag", PHASE_LOSSES,
     FAN_IN, false},
    {"sp-reversed", "the adjoint of sp puts tp shards in reverse order", PHASE_ROWS_BACK, FAN_IN_SP,
     false},
    /* gradient rules */
    {"n-over-dp", "N counts the tokens of cp rank 0 only", PHASE_LOSS, FAN_IN, false},
    {"last-micro-batch", "N counts the tokens of the last micro-batch only", PHASE_LOSS, FAN_IN,
     false},
    {"dp-mean", "an extra 1/dp", PHASE_GRADIENTS, FAN_IN, false},
    {"local-count", "each rank divides by its own tokens", PHASE_GRADIENTS, FAN_IN, false},
    {"no-encoder-sum", "encoder gradients are not summed over dp", PHASE_GRADIENTS, FAN_IN, false},
    {"sum-of-copies", "replicated parameters are summed over tp too", PHASE_GRADIENTS, FAN_IN,
     false},
    {"no-partial-sum", "partial gradients are not summed over tp", PHASE_GRADIENTS, FAN_IN_SP,
     false},
    {"norm-of-copies", "the norm counts copies as often as there are", PHASE_NORM, FAN_IN, false},
    /* layers, losses and optimizer */
    {"scale-by-width", "attention divides scores by d, not by its root", PHASE_ENCODER, FAN_IN,
     false},
    {"bias-twice", "the bias behind a sum over tp is added twice", PHASE_ENCODER, FAN_IN, false},
    {"local-causal", "the causal mask compares places in the shard, not in the sequence",
     PHASE_LAYERS, FAN_IN, false},
    {"vocabulary-offset", "every tp rank takes its logits for the first of the vocabulary",
     PHASE_LOSSES, FAN_IN, false},
    {"local-maxima", "each tp rank's exponentials are relative to its own largest logit",
     PHASE_LOSSES, FAN_IN, false},
    {"masked-count", "N counts masked tokens too", PHASE_LOSS, FAN_IN, false},
    {"no-input-sum", "gradients behind a weight split by columns are not summed over tp",
     PHASE_ROWS_BACK, FAN_IN, false},
    {"no-key-sum", "gradients of keys and values are not summed over cp", PHASE_ROWS_BACK, FAN_IN,
     false},
    {"bias-gradient-twice", "the gradient of a bias behind a sum over tp counts twice",
     PHASE_GRADIENTS, FAN_IN, false},
    {"last-use-only", "of a token that occurs often, one place adds to the embedding's gradient",
     PHASE_GRADIENTS, FAN_IN, false},
    {"next-step", "AdamW corrects its moments as if a step later", PHASE_ADAMW, FAN_IN, false},
    {"decay-of-all", "AdamW decays biases and norms too", PHASE_ADAMW, FAN_IN, false},
    {"skip-finalize", "gradients are neither summed over ranks nor scaled", PHASE_GRADIENTS, FAN_IN,
     false},
    {"samples-per-rank", "every dp rank takes the samples of all dp ranks", PHASE_LOSS, FAN_IN,
     false},
    /* adapters */
    {"adapter-after-sum", "a row-parallel layer adds its adapter once more, behind the sum over tp",
     PHASE_ENCODER, ADAPTERS, false},
    {"adapter-mean", "a row-parallel layer averages its adapter's part over tp", PHASE_ENCODER,
     ADAPTERS, false},
    {"adapter-a-whole", "A of a column-parallel layer counts as replicated", PHASE_GRADIENTS,
     ADAPTERS, false},
    {"adapter-b-whole", "B of a row-parallel layer counts as replicated", PHASE_GRADIENTS, ADAPTERS,
     false},
    {"adapter-no-input", "the gradient of a layer's input leaves out its adapter", PHASE_ROWS_BACK,
     ADAPTERS, false},
    {"scale-twice", "the gradient of B has the adapter's scale twice", PHASE_GRADIENTS, ADAPTERS,
     false},
    {"two-sums", "layer and adapter are summed over tp one after the other", PHASE_EXCHANGES,
     ADAPTERS, false},
    {"init-by-rank", "initial values are keyed by the tp rank too", PHASE_INITIAL, ADAPTERS, false},
    {"init-local-fan-in", "the bound of A comes from this rank's inputs", PHASE_INITIAL, ADAPTERS,
     false},
    {"save-first-slice", "a file has tp rank 0's slice of a factor for all", PHASE_ADAPTER,
     ADAPTERS, false},
    {"init-not-broadcast", "a factor that one rank reads stays as it was on the others",
     PHASE_ADAPTER, ADAPTERS, false},
    {"last-slice-first", "of a factor that one rank reads, tp rank 0 gets the last rank's slice",
     PHASE_ADAPTER, ADAPTERS, false},
    {"slice-by-world-rank", "the encoder's slices are counted in the LLM's tp", PHASE_ADAPTER,
     ADAPTERS_UNEQUAL, false},
    {"merge-unscaled", "an adapter is merged without its scale", PHASE_MERGED, ADAPTERS, false},
    /* experts */
    {"replay-masked", "a forced expert that the router did not choose has no weight", PHASE_ROUTER,
     EXPERTS_ALONE, false},
    {"balance-of-rank", "a balance loss takes the counts of one rank's rows", PHASE_ROUTER,
     EXPERTS_APART_CP, false},
    {"high-id-first", "of experts with equal scores the higher id wins", PHASE_CHOICE,
     EXPERTS_ALONE, false},
    {"route-own-counts", "rows of a rank begin where an expert does, whatever others sent",
     PHASE_DISPATCH, EXPERTS_PUSHED, false},
    {"first-pair-only", "a further pair of a token gets no row", PHASE_DISPATCH, EXPERTS_APART,
     false},
    {"copy-row-before", "a further pair of a token gets the row before", PHASE_DISPATCH,
     EXPERTS_APART, false},
    {"weights-by-slot", "weights come in the order of the experts, not of the choices",
     PHASE_DISPATCH, EXPERTS_APART, false},
    {"combine-one-place", "a token gets the part of one place along ep", PHASE_COMBINE,
     EXPERTS_APART, false},
    {"etp-first-part", "a token gets the part of one rank of those that share an expert",
     PHASE_COMBINE, EXPERTS_SHARED, false},
    {"weight-twice", "an expert multiplies by the weight twice", PHASE_COMBINE, EXPERTS_APART,
     false},
    {"weight-not-on-bias", "an expert adds its last bias without the weight", PHASE_COMBINE,
     EXPERTS_APART, false},
    {"bias-on-every-t", "each rank that shares an expert adds its last bias", PHASE_COMBINE,
     EXPERTS_SHARED, false},
    {"expert-adapter-per-t", "the adapter of a cut expert counts once for each of its ranks",
     PHASE_COMBINE, EXPERTS_ADAPTED, false},
    {"pair-gradient-of-t0",
     "a weight gets its gradient from one rank of those that share an expert", PHASE_ROWS_BACK,
     EXPERTS_SHARED, false},
    {"replay-constant", "weights of forced experts have no gradient", PHASE_ROWS_BACK,
     EXPERTS_ALONE, false},
    {"router-whole", "the router's gradient of a rank's own tokens counts as whole",
     PHASE_GRADIENTS, EXPERTS_SHARED, false},
    {"rows-not-cut", "each tp rank sends the rows of all to experts", PHASE_GRADIENTS,
     EXPERTS_SHARED, false},
    {"view-ignored", "experts count as parameters of the LLM's own grid", PHASE_GRADIENTS,
     EXPERTS_COPIED_TP, false},
    {"no-edp-sum", "copies of an expert are not summed over edp", PHASE_GRADIENTS, EXPERTS_COPIED,
     false},
    {"experts-over-dp", "gradients of experts are summed over dp, in place of edp", PHASE_GRADIENTS,
     EXPERTS_COPIED, false},
    {"edp-mean", "an extra 1/edp", PHASE_GRADIENTS, EXPERTS_COPIED, false},
    {"expert-a-whole", "A of an expert's first layer counts as whole on each of its ranks",
     PHASE_GRADIENTS, EXPERTS_ADAPTED, false},
    {"expert-b-whole", "B of an expert's last layer counts as whole on each of its ranks",
     PHASE_GRADIENTS, EXPERTS_ADAPTED, false},
    {"expert-z-of-next", "B of an expert learns from what A gives of the next row", PHASE_GRADIENTS,
     EXPERTS_OF_ONE_RANK, false},
    {"bucket-where-held", "a rank that holds none of the trained experts has no bucket of them",
     PHASE_RUN, EXPERTS_OF_ONE_RANK, false},
    {"norm-of-expert-copies", "the norm counts copies of experts as often as there are", PHASE_NORM,
     EXPERTS_COPIED, false},
    {"save-expert-copies", "each copy of an expert is saved, not one of them", PHASE_RUN,
     EXPERTS_COPIED_ADAPTED, false},
    {"save-first-ep", "a file has what ep rank 0 has, for the experts of all", PHASE_ADAPTER,
     EXPERTS_COPIED_ADAPTED, false},
    {"expert-local-id", "a rank takes its experts from a file by their numbers on the rank",
     PHASE_ADAPTER, EXPERTS_COPIED_ADAPTED, false},
    /* stages */
    {"shard-without-pp", "stages count as copies of one another's parameters", PHASE_RUN, STAGES_4,
     false},
    {"weight-before-input", "weights' half of a backward stands before the input's", PHASE_RUN,
     STAGES_2_ZERO, false},
    {"weights-half-twice", "a backward has its weights' half twice", PHASE_RUN, STAGES_2, false},
    {"chunk-order-reversed", "the chunks of a stage are in reverse order", PHASE_LAYERS,
     STAGES_2_RING, false},
    {"loss-on-every-stage", "N counts the tokens that each stage knows of", PHASE_LOSS, STAGES_2,
     false},
    {"saved-of-last", "a stage gives the gradient in its last saved state back, always",
     PHASE_ROWS_BACK, STAGES_2_ZERO, false},
    {"positions-on-every-stage", "each stage has positions, and learns those that it uses",
     PHASE_GRADIENTS, STAGES_2, false},
    {"dw-of-layer0-dropped", "weights of a chunk's first block learn nothing", PHASE_GRADIENTS,
     STAGES_2_ZERO, false},
    {"input-counts-as-last", "weights learn nothing behind the last input's half of backward",
     PHASE_GRADIENTS, STAGES_2_ZERO, false},
    {"hop-of-next-micro-batch", "a stage takes its input for that of another micro-batch",
     PHASE_LAYERS, STAGES_4, false},
    {"group-tile-overwritten", "gradients of the rows go back from another micro-batch's tile",
     PHASE_ROWS_BACK, STAGES_2, false},
    {"last-group-dropped", "the encoder learns nothing from the last micro-batch", PHASE_GRADIENTS,
     STAGES_2, false},
    {"node-before-its-move", "a node does not wait for the move that it reads", PHASE_EXPERTS,
     EXPERTS_PAIRED, false},
    {"weights-node-lost", "experts learn nothing in steps of a forward and a backward",
     PHASE_GRADIENTS, EXPERTS_PAIRED, false},
    {"weight-of-last-dropped", "weights learn nothing from the last micro-batch", PHASE_GRADIENTS,
     STAGES_2_ZERO, false},
    /* the whole model */
    {"pictures-of-lane-0", "each lane of the encoder encodes the pictures of the first one",
     PHASE_MODEL, FAN_IN, false},
    {NULL, NULL, PHASE_RUN, GRIDS(NULL, NULL, .sp = false), false},
};

#define FIXED(encoder_, llm_, adapters_) \
    GRIDS(encoder_, llm_, .adapters = (adapters_), .shards = 8, .pairs = 4)

/* Topologies on which each bug shows: several hide on others. */
static const oracle_order_mutation order_table[] = {
    {"shard-by-rank", "a sum over tp has as many parts as ranks, and not V", "loss",
     FIXED("tp=1,dp=2", "tp=2,cp=1,dp=1", 0)},
    {"wgrad-whole", "a weight's gradient is one product for a micro-batch", "grads",
     FIXED("tp=1,dp=2", "tp=1,cp=1,dp=2", 0)},
    {"leaf-by-cp", "a sum over cp has as many pairs of chunks as ranks, and not C", "grads",
     FIXED("tp=1,dp=2", "tp=1,cp=2,dp=1", 0)},
    {"key-order", "keys are in the order of the ranks", "loss",
     FIXED("tp=1,dp=2", "tp=1,cp=2,dp=1", 0)},
    {"loss-float", "token losses are not rounded", "loss", FIXED("tp=1,dp=2", "tp=1,cp=2,dp=1", 0)},
    {"norm-by-rank", "the norm adds the squares of a rank's slice", "norm",
     FIXED("tp=1,dp=2", "tp=2,cp=1,dp=1", 0)},
    {"norm-stage-by-stage", "the norm adds up the squares of each stage first", "norm",
     GRIDS("tp=1,dp=2", "pp=2", .shards = 8, .pairs = 4)},
    {NULL, NULL, NULL, GRIDS(NULL, NULL, .sp = false)},
};

/* Bugs that no run of mimo-oracle meets. A test with each of them fails, as its meson.build
 * says: here, in tests/mpi, tests/nn and tests/unit. */
static const char *const unit_table[] = {
    "exp-float",               /* exponentials are added in f64, and their sum is fixed */
    "minus-zero",              /* -0 that a bridge's backward brought stays -0 */
    "rows-mirrored",           /* rows that ranks give count at the opposite dp coordinate */
    "last-piece-lost",         /* a staged message ends before its last piece */
    "entry-still-full",        /* a FIFO's sender does not wait until an entry is empty */
    "capacity-own",            /* a rank looks at the capacity of its own tile alone */
    "lost-as-zero",            /* a token that lost a pair counts as one that lost none */
    "combine-by-arrival",      /* rows of a token are added one after the other */
    "padding-kept",            /* rows between experts keep what was there */
    "adapter-own-alpha",       /* an adapter is read with alpha 16, and not with its file's */
    "adapter-rows-apart",      /* B of an adapter does not know that its rows are packed */
    "qkv-packed-by-kind",      /* queries, keys and values count as packed kind by kind */
    "bridge-order-by-stage",   /* the order of a stage's calls is compared with no other's */
    "hop-reused-early",        /* the tile of a message is written again while it is on its way */
    "wait-for-chunk-0-always", /* a micro-batch waits for its group's first one */
    "norm-misses-stages",      /* the norm in the fixed order is one stage's */
    "layers-for-items",        /* names of a pattern with groups count layers */
    "key-twice",               /* two tensors may get one name in a checkpoint */
    "backward-right-away",     /* gradients are to go back before stage 0 has them */
    "calls-by-group",          /* a schedule's calls of the bridge stand in the order of groups */
    "group-back-early",        /* a group's gradients go back before the last of them is there */
    "limit-plus-one",          /* a stage holds one encoder group too many */
    "item-order-ignored",      /* items lie in a tile in another order than its lane lists */
    "item-twice-allowed",      /* a row may be in two items */
    "merge-ratio-forgotten",   /* an image has as many rows as patches */
    "cost-ignored",            /* items are dealt to lanes by their number, not by their cost */
    "call-ends-alone",         /* a call of the bridge ends when one stage has begun it */

    "last-dw-node-dropped",      /* the last node with gradients of weights is left out of a step */
    "final-norm-by-layer-count", /* the last chunk that has a layer has the final norm */
    "two-combines-swapped",      /* two exchanges of a step change places */
    "lanes-cost-nothing",        /* products beside exchanges have all multiprocessors */
    "replay-twice",              /* experts are asked a second time before a backward */
    "piece-over-the-limit",      /* a piece of the encoder begins a group too many */
    "experts-not-again",         /* recompute: backward reads what another forward left */
    "rows-before-their-route",   /* rows go while the route is being set */

    "exchange-without-its-input",   /* lanes: an exchange does not wait for what is computed */
    "compute-without-its-exchange", /* lanes: what is computed does not wait for an exchange */
    "exchanges-out-of-turn",        /* lanes: a route and rows may run at once */
    NULL,
};

static const char *active;
static bool reached;

static void end_program(const char *what, const char *name)
{
    fprintf(stderr, "mimo-oracle: %s '%s'\n", what, name);
    abort();
}

bool mutation_exists(const char *name)
{
    for (const oracle_mutation *row = table; row->name; row++)
        if (strcmp(row->name, name) == 0)
            return true;
    for (const oracle_order_mutation *row = order_table; row->name; row++)
        if (strcmp(row->name, name) == 0)
            return true;
    for (const char *const *row = unit_table; *row; row++)
        if (strcmp(*row, name) == 0)
            return true;
    return false;
}

static const char *flags_of(const oracle_spec *spec)
{
    static char flags[160];
    const schedule_choice *schedule = &spec->schedule;
    bool zero = schedule->kind == MIMO_SCHEDULE_ZERO_BUBBLE;
    int used =
        snprintf(flags, sizeof flags, "%s%s%s", spec->sp ? " --sp" : "",
                 zero ? " --schedule zero-bubble" : "", schedule->overlap ? " --overlap" : "");
    if (schedule->chunks > 1)
        used += snprintf(flags + used, sizeof flags - (size_t)used, " --schedule interleaved:%d",
                         (int)schedule->chunks);
    if (spec->adapters > 0)
        used +=
            snprintf(flags + used, sizeof flags - (size_t)used, " --adapters %d%s%s",
                     spec->adapters, spec->adapted ? ":" : "", spec->adapted ? spec->adapted : "");
    if (spec->experts > 0)
        snprintf(flags + used, sizeof flags - (size_t)used, " --experts %d,%d --expert-grid %s",
                 (int)spec->experts, (int)spec->top_k, spec->expert_grid);
    return flags;
}

void mutation_list(FILE *stream)
{
    for (const oracle_mutation *row = table; row->name; row++)
        fprintf(stream, "%s\t%s\t--encoder %s --llm %s --executor %s%s\t%s\t%s\n", row->name,
                oracle_phase_rows[row->phase].name, row->spec.encoder, row->spec.llm,
                oracle_executor_name(row->spec.executor), flags_of(&row->spec), row->sentence,
                row->in_bridge ? "self-test" : "");
}

void mutation_list_of_order(FILE *stream)
{
    for (const oracle_order_mutation *row = order_table; row->name; row++)
        fprintf(stream, "%s\t%s\t--encoder %s --llm %s%s\t%s\t\n", row->name, row->quantity,
                row->spec.encoder, row->spec.llm, flags_of(&row->spec), row->sentence);
}

void mutation_switch_on(const char *name)
{
    active = name;
    reached = false;
}

bool mutation_reached(void)
{
    return reached;
}

/* The test copies of the library and of train/nn call it. */
bool mimo_mutated(const char *name)
{
    if (!mutation_exists(name))
        end_program("the sources ask for an unknown mutation", name);
    bool on = active && strcmp(active, name) == 0;
    reached = reached || on;
    return on;
}
