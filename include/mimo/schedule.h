/*
 * Schedules: what each stage of a pipeline does, step by step, beside an encoder that lies on all
 * ranks. Pure, local, without a communicator: any process has the lists of all stages. Thread-safe
 * on schedules that no thread destroys.
 *
 * Letters: p of pp *stages*, M micro-batches, V *chunks* of a stage. A stage is what one rank (or
 * the ranks of one pp coordinate) computes; the model's layers are cut into pp * V chunks, and
 * chunk c of stage p is usually number c * pp + p of the model. The encoder works on *groups* of
 * G micro-batches, n = ceil(M / G) of them, and a stage holds at most L groups at once.
 *
 * A schedule is data: a list for each stage. An executor walks its list and decides nothing. So a
 * schedule can be printed, drawn, checked and timed before a rank is started.
 *
 * docs/concepts.md has a picture, under "Schedules".
 */
#ifndef MIMO_SCHEDULE_H
#define MIMO_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <mimo/status.h>

MIMO_BEGIN_DECLS

/* ---------------------------------------- experimental ---------------------------------------- */
/* Only where MIMO_EXPERIMENTAL is defined: see <mimo/status.h>. */
#ifdef MIMO_EXPERIMENTAL

/* ------------------------------------------- steps ------------------------------------------ */

/** One row for each kind of step: X(name, cost, what it does). `cost` is its value in
 *  MIMO_STEP_COSTS_INIT. */
#define MIMO_STEP_LIST(X)                                                     \
    X(F, 4, "forward of a micro-batch through a chunk")                       \
    X(B, 8, "its whole backward")                                             \
    X(I, 4, "the part of its backward that the stage before it waits for")    \
    X(W, 4, "the other part: gradients of weights")                           \
    X(FB, 0, "a forward beside the backward of another micro-batch")          \
    X(E, 1, "the encoder's forward of a group")                               \
    X(BF, 0, "the bridge's forward of a group: a call that all stages begin") \
    X(BB, 0, "the bridge's backward of a group, likewise")                    \
    X(EB, 2, "the encoder's backward of a group")

typedef enum mimo_step_kind {
#define MIMO_STEP_ENUM(name, cost, what) MIMO_STEP_##name,
    MIMO_STEP_LIST(MIMO_STEP_ENUM)
#undef MIMO_STEP_ENUM
        MIMO_STEP_KINDS /* their number */
} mimo_step_kind;

typedef struct mimo_schedule_step {
    mimo_step_kind kind;
    int64_t index, chunk;     /* micro-batch and chunk of the stage. E, BF, BB, EB: group, and 0 */
    int64_t back, back_chunk; /* FB: micro-batch and chunk of its backward; otherwise 0 */
} mimo_schedule_step;

/** How long steps take, in any unit. Whole numbers, so that every rank makes the same lists. */
typedef struct mimo_step_costs {
    size_t size;                 /* set by the initializer */
    int64_t of[MIMO_STEP_KINDS]; /* at its kind. E and EB: of one micro-batch. BF and BB: from the
                                    last begin on any stage to the end. FB 0: F and B one after the
                                    other */
    int64_t head;                /* more for F, I and W of the model's last chunk; B: twice */
    int64_t hop;                 /* between the end of a step and what waits for it elsewhere */
} mimo_step_costs;

/* clang-format off */
#define MIMO_STEP_COSTS_INIT {sizeof(mimo_step_costs), {4, 8, 4, 4, 0, 1, 0, 0, 2}, 0, 0}
/* clang-format on */

MIMO_API void mimo_step_costs_init(mimo_step_costs *out, size_t size);

/* ----------------------------------------- schedules ---------------------------------------- */

/** One row for each kind of schedule: X(name, value, word, what it is). */
#define MIMO_SCHEDULE_KIND_LIST(X)                                                     \
    X(1F1B, 0, "1f1b", "a forward, a backward in turn, after a warmup")                \
    X(INTERLEAVED, 1, "interleaved", "1F1B over V chunks; M is a multiple of pp")      \
    X(ZERO_BUBBLE, 2, "zero-bubble", "1F1B, I and W for B; stage p holds W back by p") \
    X(FORWARD, 3, "forward", "F alone: evaluation, generation")

typedef enum mimo_schedule_kind {
#define MIMO_SCHEDULE_KIND_ENUM(name, value, word, what) MIMO_SCHEDULE_##name = (value),
    MIMO_SCHEDULE_KIND_LIST(MIMO_SCHEDULE_KIND_ENUM)
#undef MIMO_SCHEDULE_KIND_ENUM
} mimo_schedule_kind;

typedef struct mimo_schedule_desc {
    size_t size; /* set by the initializer */
    mimo_schedule_kind kind;
    int64_t stages, chunks, micro_batches; /* pp, V, M */
    int64_t encoder_group;                 /* G; 0: no encoder; M: three phases (encoder forward,
                                              pipeline, encoder backward) */
    int64_t encoder_alive;                 /* L, the most groups that a stage holds; 0: no limit */
    bool encoder_frozen;                   /* no BB, no EB. A group is held until its last F */
    bool overlap;                 /* 1F1B, interleaved: one more warmup, and FB in place of F, B */
    const mimo_step_costs *costs; /* borrowed during the call; NULL: those of the initializer */
    bool any_order;               /* a table's backwards may come in any order of micro-batches.
                                     Gradients are sums in that order, so their bits are not those
                                     of other schedules. Encoder groups still go back in order */
} mimo_schedule_desc;

#define MIMO_SCHEDULE_DESC_INIT                                                                  \
    {                                                                                            \
        sizeof(mimo_schedule_desc), MIMO_SCHEDULE_1F1B, 1, 1, 1, 0, 0, false, false, NULL, false \
    }

/** The most forwards of all stages together, pp * V * M: a bound on time and memory of a list. */
enum { MIMO_SCHEDULE_MOST_FORWARDS = 1 << 24 };

MIMO_API void mimo_schedule_desc_init(mimo_schedule_desc *out, size_t size);

typedef struct mimo_schedule mimo_schedule;

/**
 * Create a schedule. The caller owns *out (mimo_schedule_destroy). Local; a pure function of the
 * descriptor.
 *
 * The LLM's steps are those of the kind. The encoder's steps are put between them by one rule: all
 * stages are simulated with the costs, an encoder step fills the time in which a stage would wait
 * for its next LLM step, and comes first where stage 0 needs it. BF and BB stand where every stage
 * begins the call within a step of the others. The lists are checked (mimo_schedule_check) before
 * they are returned.
 *
 * Time and memory grow as pp * V * M.
 *
 * Errors: MIMO_ERR_ARGUMENT (a size or a cost out of range, more than MIMO_SCHEDULE_MOST_FORWARDS
 * forwards, all costs 0, G > M, M not a multiple of pp, chunks or overlap where the kind has none,
 * L smaller than what stage 0 needs: the sentence has that number).
 */
MIMO_API mimo_status mimo_schedule_create(mimo_schedule **out, const mimo_schedule_desc *desc);

/**
 * The same with the LLM's steps read from a table of torch.distributed.pipelining ("compute_only"):
 * a row a stage, cells such as 5B1, which is the backward of micro-batch 1 through chunk 5 of the
 * model; F, B, I, W, (0F1;0B0)OVERLAP_F_B, or blank. 0REDUCE_GRAD is left out: the caller reduces
 * gradients. Stage p has chunk p of the model and one of each further pp, in any placement.
 * desc->kind says only whether backwards belong to it. Tables of torch's LoopedBFS have backwards
 * in descending order, and need any_order.
 *
 * Errors beside those of mimo_schedule_create: MIMO_ERR_ARGUMENT for text that is no such table of
 * these sizes, or whose lists break a rule of mimo_schedule_check, with row, cell or step.
 */
MIMO_API mimo_status mimo_schedule_create_csv(mimo_schedule **out, const mimo_schedule_desc *desc,
                                              const char *text);

/** Release. NULL is fine. */
MIMO_API void mimo_schedule_destroy(mimo_schedule *schedule);

/** The steps of a stage in their order, and their number in *count. A stage that does not exist has
 *  none. Owned by the schedule. Thread-safe. */
MIMO_API const mimo_schedule_step *
mimo_schedule_steps(int64_t *count, const mimo_schedule *schedule, int64_t stage);

/**
 * Prove a schedule:
 *   - every step stands on its stage once (a backward whole, or as I and W), after what it needs of
 *     the same stage; forwards of a chunk ascend by micro-batch, and so do backwards, unless the
 *     descriptor has any_order;
 *   - all stages begin the calls BF and BB in one order, and two stages pass micro-batches in one
 *     order on both sides;
 *   - no stage holds more than L groups;
 *   - nobody waits for ever. F waits for the chunk before it. The F of the model's first chunk
 *     waits for the call BF of its group, which ends when *all* stages have begun it. B and I wait
 *     for the chunk behind, EB for the call BB.
 *
 * Schedules are checked where they are created, so this is for tests and tools. MIMO_ERR_ARGUMENT
 * has the first step that breaks a rule; where stages wait for each other, both of them.
 */
MIMO_API mimo_status mimo_schedule_check(const mimo_schedule *schedule);

/* -------------------------------------- time and memory ------------------------------------- */

/** When each step of a stage begins and ends, into begin[count] and end[count], where every stage
 *  begins each step as soon as it may. A call (BF, BB) begins when the stage comes to it, keeps
 *  nobody from the next step, and ends when its rows are there. Calls follow each other: the cost
 *  of one counts from the last begin on any stage, or from the end of the call before it where that
 *  is later. costs NULL: the descriptor's.
 *  MIMO_ERR_ARGUMENT: no such stage, costs as for mimo_schedule_create. */
MIMO_API mimo_status mimo_schedule_times(int64_t *begin, int64_t *end,
                                         const mimo_schedule *schedule, int64_t stage,
                                         const mimo_step_costs *costs);

/** What a stage, or the stage with the most, holds at once. */
typedef struct mimo_schedule_memory {
    size_t size;             /* set by the initializer */
    int64_t encoder_alive;   /* micro-batches in encoder groups, from E to EB. Where nothing goes
                                back: to the last F on stage 0, to BF on others */
    int64_t chunks_alive;    /* activations: chunks of micro-batches from F to B or W */
    int64_t weights_waiting; /* micro-batches and chunks between I and W */
    int64_t saved_states;    /* states to allocate: the sum over chunks of each one's most. Chunks
                                do not share states, as their layers differ */
} mimo_schedule_memory;

#define MIMO_SCHEDULE_MEMORY_INIT                \
    {                                            \
        sizeof(mimo_schedule_memory), 0, 0, 0, 0 \
    }

MIMO_API void mimo_schedule_memory_init(mimo_schedule_memory *out, size_t size);

/** Count what a stage holds. `out` starts from its _INIT. MIMO_ERR_ARGUMENT: no such stage. */
MIMO_API mimo_status mimo_schedule_memory_of(mimo_schedule_memory *out,
                                             const mimo_schedule *schedule, int64_t stage);

typedef struct mimo_schedule_report {
    size_t size;          /* set by the initializer */
    int64_t time;         /* until the last stage has ended */
    int64_t idle;         /* of all stages together: pp * time - their steps */
    int64_t three_phases; /* time of the same LLM steps with G = M */
    int64_t llm_alone;    /* and without encoder */
    int64_t lower_bound;  /* the steps of the stage that has the most of them to do */
    int64_t least_alive;  /* the smallest L that these LLM steps allow with this G; 0: no encoder */
    int64_t encoder_alive, chunks_alive, weights_waiting, saved_states; /* the most of any stage */
} mimo_schedule_report;

#define MIMO_SCHEDULE_REPORT_INIT                                  \
    {                                                              \
        sizeof(mimo_schedule_report), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

MIMO_API void mimo_schedule_report_init(mimo_schedule_report *out, size_t size);

/** Sum a schedule up. `out` starts from its _INIT. costs NULL: the descriptor's. The lists stay as
 *  they are; other costs say what they would take. Errors: costs as for mimo_schedule_create. */
MIMO_API mimo_status mimo_schedule_report_of(mimo_schedule_report *out,
                                             const mimo_schedule *schedule,
                                             const mimo_step_costs *costs);

/* ------------------------------------------- texts ------------------------------------------ */

typedef enum mimo_schedule_format {
    MIMO_SCHEDULE_TEXT = 0,  /* a line a stage, "stage 0: E0 BF0 F0 B0 BB0 EB0"; stable enough to
                                be stored as golden text */
    MIMO_SCHEDULE_CSV = 1,   /* the LLM's steps as torch.distributed.pipelining reads them */
    MIMO_SCHEDULE_SVG = 2,   /* a timeline with the schedule's costs, to look at */
    MIMO_SCHEDULE_TRACE = 3, /* the same as events for chrome://tracing and Perfetto: JSON */
} mimo_schedule_format;

/** Write a schedule to a stream. MIMO_ERR_IO where that fails. */
MIMO_API mimo_status mimo_schedule_print(FILE *stream, const mimo_schedule *schedule,
                                         mimo_schedule_format format);

/** The same as text: at most capacity - 1 characters into `text` (always terminated; NULL where
 *  capacity is 0), and the length of the whole into *length (may be NULL). MIMO_ERR_ARGUMENT:
 *  capacity < 0. */
MIMO_API mimo_status mimo_schedule_text(int64_t *length, char *text, int64_t capacity,
                                        const mimo_schedule *schedule, mimo_schedule_format format);

/** When the steps of a run ran, for a picture of it beside that of its schedule. A call (BF, BB)
 *  ends when its rows are there, or where nobody knows that, when it was begun. */
typedef struct mimo_schedule_run {
    size_t size; /* set by the initializer */
    /* begin[stage][i] and end[stage][i] of step i of each stage's list, from the run's start on, in
     * any unit; borrowed */
    const int64_t *const *begin, *const *end;
    const mimo_step_costs *costs; /* of steps in that unit, for the times of other schedules;
                                     borrowed; NULL: the schedule's */
    const char *unit; /* of times, such as "us": 1 to 15 letters; borrowed; NULL: none is written */
} mimo_schedule_run;

#define MIMO_SCHEDULE_RUN_INIT                            \
    {                                                     \
        sizeof(mimo_schedule_run), NULL, NULL, NULL, NULL \
    }

MIMO_API void mimo_schedule_run_init(mimo_schedule_run *out, size_t size);

/** Write a run as mimo_schedule_print does a schedule, in one of the formats that have times:
 *  MIMO_SCHEDULE_SVG and MIMO_SCHEDULE_TRACE. Errors: MIMO_ERR_ARGUMENT (another format, NULL, a
 *  step that begins before the start or ends before it begins, costs as for mimo_schedule_create,
 *  a unit that is not letters), MIMO_ERR_IO. */
MIMO_API mimo_status mimo_schedule_print_run(FILE *stream, const mimo_schedule *schedule,
                                             mimo_schedule_format format,
                                             const mimo_schedule_run *run);

/** A hash of sizes and lists, not of costs, for ranks to compare before they execute a schedule. */
MIMO_API uint64_t mimo_schedule_hash(const mimo_schedule *schedule);

/* ------------------------------------------- nodes ------------------------------------------ */

/*
 * What the steps of a schedule are made of, where layers have mixtures of experts. Rows go to the
 * experts, and sums come back, between ranks. A step that does one thing after the other waits for
 * both. In a step FB the products of one micro-batch hide the exchanges of the other one.
 *
 * A *node* is one *part* of a layer, or of what stands around the layers of a chunk, in one *pass*.
 * It runs in a *lane*: a stream, or on the host the order of calls. A lane runs its nodes in the
 * order of the list. A node begins when two things have ended: the node before it in its lane, and
 * the nodes of other lanes that it waits for (mimo_nodes_waits).
 *
 * The order of exchanges is one on all ranks, and two of them never run at once. A walk through the
 * list, one node after the other, is right as well.
 */

/** X(name, word, what runs in it). All lanes but the first wait for other ranks. */
#define MIMO_NODE_LANE_LIST(X)                                      \
    X(COMPUTE, "compute", "products, and what needs no other rank") \
    X(EXCHANGES, "exchanges", "rows to experts, and sums back")     \
    X(HOPS, "hops", "activations and gradients between stages")     \
    X(BRIDGE, "bridge", "the calls BF and BB")                      \
    X(SYNC, "sync", "sums of gradients over ranks")

typedef enum mimo_node_lane {
#define MIMO_NODE_LANE_ENUM(name, word, what) MIMO_NODE_LANE_##name,
    MIMO_NODE_LANE_LIST(MIMO_NODE_LANE_ENUM)
#undef MIMO_NODE_LANE_ENUM
        MIMO_NODE_LANES /* their number */
} mimo_node_lane;

/** X(name, word, lane, what it is). The first eight are parts of a layer. */
#define MIMO_NODE_PART_LIST(X)                                                                  \
    X(PRE, "pre", COMPUTE, "attention or a mixer, norms, the choice of experts")                \
    X(ROUTE, "route", EXCHANGES, "where rows go: the choice alone, ahead of the rows")          \
    X(DISPATCH, "dispatch", EXCHANGES, "rows to their experts; without ROUTE, the route first") \
    X(SHARED, "shared", COMPUTE, "the shared expert")                                           \
    X(MLP, "mlp", COMPUTE, "this rank's experts, or a dense MLP")                               \
    X(COMBINE, "combine", EXCHANGES, "sums back")                                               \
    X(BEHIND, "behind", COMPUTE, "what a combine is added to; gather over tp; has no backward") \
    X(POST, "post", COMPUTE, "the head of multi-token prediction")                              \
    X(PRE_PROCESS, "pre_process", COMPUTE, "embedding, or the input from the chunk before")     \
    X(POST_PROCESS, "post_process", COMPUTE, "final norm, head and loss, where they are")       \
    X(SEND_RECV, "send_recv", HOPS, "the result to the chunk that takes it")                    \
    X(GRAD_SYNC, "grad_sync", SYNC, "gradients of a chunk, behind its last micro-batch")        \
    X(ENCODER, "encoder", COMPUTE, "E and EB of a group")                                       \
    X(CALL, "call", BRIDGE, "BF and BB of a group")

typedef enum mimo_node_part {
#define MIMO_NODE_PART_ENUM(name, word, lane, what) MIMO_NODE_##name,
    MIMO_NODE_PART_LIST(MIMO_NODE_PART_ENUM)
#undef MIMO_NODE_PART_ENUM
        MIMO_NODE_PARTS /* their number */
} mimo_node_part;
enum { MIMO_NODE_LAYER_PARTS = MIMO_NODE_PRE_PROCESS };

typedef enum mimo_node_pass {
    MIMO_NODE_FORWARD = 0,
    MIMO_NODE_REPLAY = 1,  /* the forward that backward repeats */
    MIMO_NODE_INPUTS = 2,  /* backward: the gradient of the part's input */
    MIMO_NODE_WEIGHTS = 3, /* backward: the gradients of its parameters */
    MIMO_NODE_PASSES = 4
} mimo_node_pass;

typedef struct mimo_node {
    mimo_node_part part;
    mimo_node_pass pass;
    int64_t step;               /* of the stage's list in the schedule */
    int64_t micro_batch, chunk; /* chunk of the stage. ENCODER, CALL: the group, and 0 */
    int64_t layer; /* of the chunk; 0 for what is no part of a layer. ENCODER: the piece,
                                   from 1, where it is cut; 0: the whole */
} mimo_node;

/** A layer's parts: bit 1 << MIMO_NODE_PRE and so on. A mixture has PRE, DISPATCH, MLP and COMBINE,
 *  and may have BEHIND; with SHARED it must. With ROUTE its route is set behind PRE, beside the
 *  products that come before its DISPATCH. A layer without DISPATCH has PRE, MLP or both. */
#define MIMO_LAYER_DENSE (1u << MIMO_NODE_PRE | 1u << MIMO_NODE_MLP)
#define MIMO_LAYER_MIXTURE (MIMO_LAYER_DENSE | 1u << MIMO_NODE_DISPATCH | 1u << MIMO_NODE_COMBINE)
#define MIMO_LAYER_ROUTED (MIMO_LAYER_MIXTURE | 1u << MIMO_NODE_ROUTE)
#define MIMO_LAYER_SHARED (MIMO_LAYER_MIXTURE | 1u << MIMO_NODE_SHARED | 1u << MIMO_NODE_BEHIND)

typedef enum mimo_node_recompute {
    MIMO_RECOMPUTE_NONE = 0,
    MIMO_RECOMPUTE_KEEP_ROWS = 1, /* computing parts run again; experts' rows and routes are kept */
    MIMO_RECOMPUTE_SEND_ROWS = 2, /* rows are sent again as well, by the kept route */
    MIMO_RECOMPUTE_BY_COSTS = 3,  /* SEND_ROWS in all such layers, if the whole then takes no longer
                                     than with KEEP_ROWS; otherwise KEEP_ROWS */
} mimo_node_recompute;

/** How long nodes take, in any unit: whole numbers, as in mimo_step_costs. */
typedef struct mimo_node_costs {
    size_t size;                                   /* set by the initializer */
    int64_t of[MIMO_NODE_PARTS][MIMO_NODE_PASSES]; /* COMPUTE: with all multiprocessors. Other
                                                      lanes: with the lane's. ENCODER: of a group's
                                                      micro-batch. SEND_RECV: between two stages */
} mimo_node_costs;

/* clang-format off */
#define MIMO_NODE_COSTS_INIT                                                                       \
    {                                                                                              \
        sizeof(mimo_node_costs),                                                                   \
        {{3, 3, 3, 3}, {0, 0, 0, 0}, {2, 2, 2, 0}, {1, 1, 1, 1}, {4, 4, 4, 4}, {2, 2, 2, 0},       \
         {0, 0, 0, 0}, {1, 0, 2, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0},       \
         {1, 0, 2, 0}, {0, 0, 0, 0}}                                                               \
    }
/* clang-format on */

MIMO_API void mimo_node_costs_init(mimo_node_costs *out, size_t size);

typedef struct mimo_node_layer {
    uint32_t parts; /* bits, as above. Not POST: mtp says that */
    mimo_node_recompute recompute;
    const mimo_node_costs *costs; /* of this layer; borrowed during the call; NULL: the others' */
} mimo_node_layer;

/** What a chunk has beside its layers: bits. */
enum {
    MIMO_CHUNK_EMBEDDING = 1,  /* the first chunk of a model */
    MIMO_CHUNK_FINAL_NORM = 2, /* this and the next one: the last chunk, with or without layers */
    MIMO_CHUNK_HEAD = 4,
};

typedef struct mimo_node_chunk {
    const mimo_node_layer *layers; /* layers[count]; borrowed during the call */
    int64_t count;
    uint32_t has; /* MIMO_CHUNK_*. All chunks 0: as they belong */
    int64_t mtp;  /* depth of multi-token prediction, in the last chunk: 0 or 1. With 1 the last
                     layer has POST */
} mimo_node_chunk;

typedef struct mimo_nodes_desc {
    size_t size;                    /* set by the initializer */
    const mimo_node_costs *costs;   /* borrowed during the call; NULL: those of the initializer */
    int64_t multiprocessors;        /* of a device; 0: nothing shares them, as on a host */
    int64_t lanes[MIMO_NODE_LANES]; /* thread blocks of each lane's kernels, a multiprocessor each.
                                       HOPS: of each neighbour and direction. COMPUTE: of
                                       collectives inside its nodes, as over tp; 0: none */
    bool early;     /* FB: the backward of PRE comes before the forward's MLP. Activations are
                       given up earlier, and less is hidden */
    bool grad_sync; /* gradients are added over ranks behind each chunk's last micro-batch */
    int64_t encoder_pieces; /* E and EB are cut into this number, at layers of the encoder. Pieces
                               fill what exchanges leave idle: of E earlier than their step, of EB
                               later, never more than L groups alive. Only if the whole then takes
                               less time. 0, 1, or an encoder without backward: none is moved */
} mimo_nodes_desc;

/* clang-format off */
#define MIMO_NODES_DESC_INIT {sizeof(mimo_nodes_desc), NULL, 0, {0, 32, 8, 16, 16}, false, false, 0}
/* clang-format on */

MIMO_API void mimo_nodes_desc_init(mimo_nodes_desc *out, size_t size);

typedef struct mimo_nodes mimo_nodes;

/**
 * Cut all steps of a schedule into nodes. chunks[pp * V]: the model's, from the first to the last.
 * The caller owns *out (mimo_nodes_destroy). Local; a pure function of its arguments, from which
 * nothing is borrowed afterwards. mimo_nodes_check looks at the lists before they are returned.
 *
 * A kernel that waits for a peer must not keep another from running, or two ranks wait for each
 * other's other kernel. So all kernels that may wait are resident together: the lanes that a stage
 * uses take at most multiprocessors - 4 in sum.
 *
 * Errors: MIMO_ERR_ARGUMENT (NULL, a cost or a number out of range, a layer whose parts do not go
 * together, steps FB and no mixture, lanes that need too many multiprocessors, a chunk
 * that has what belongs to another one); MIMO_ERR_UNSUPPORTED (mtp deeper than 1).
 */
MIMO_API mimo_status mimo_nodes_create(mimo_nodes **out, const mimo_schedule *schedule,
                                       const mimo_node_chunk *chunks, const mimo_nodes_desc *desc);

/**
 * The same for one step alone: micro-batch 1 forward through one chunk, micro-batch 0 backward
 * through another. NULL: the step has no such half (FB, F or B). What ran before, such as the
 * forward of micro-batch 0, is taken as done. What the chunks have (`has`) is not compared. Lanes
 * have the hops of an inner stage.
 */
MIMO_API mimo_status mimo_nodes_create_step(mimo_nodes **out, const mimo_node_chunk *forward,
                                            const mimo_node_chunk *backward,
                                            const mimo_nodes_desc *desc);

/** Release. NULL is fine. */
MIMO_API void mimo_nodes_destroy(mimo_nodes *nodes);

/** The nodes of a stage in their order, and their number in *count. A stage that does not exist has
 *  none. Owned by `nodes`. Thread-safe. */
MIMO_API const mimo_node *mimo_nodes_of(int64_t *count, const mimo_nodes *nodes, int64_t stage);

/** The lane that a part, one of the list above, runs in. */
MIMO_API mimo_node_lane mimo_node_lane_of(mimo_node_part part);

/** What node i of a stage waits for, into waits[MIMO_NODE_LANES]: in each other lane the last such
 *  node of the same stage, or -1. In its own lane, and where there is no such node: -1. What comes
 *  from other stages is not here: HOPS and BRIDGE bring it. Thread-safe.
 *  MIMO_ERR_ARGUMENT: no such stage or node. */
MIMO_API mimo_status mimo_nodes_waits(int64_t *waits, const mimo_nodes *nodes, int64_t stage,
                                      int64_t i);

/**
 * Prove lists of nodes:
 *   - one chunk of the model, the first, has the embedding; one, the last, has final norm and head,
 *     and multi-token prediction where there is any;
 *   - every node that the layers have stands in the list of its stage once, in its step (a piece of
 *     the encoder in any), behind all
 *     that it needs: gradients of weights behind those of inputs, what backward reads behind what
 *     makes it (a replay, where it was given up), grad_sync behind all gradients of its chunk;
 *   - lanes that wait have room together; no stage holds more than L encoder groups;
 *   - nobody waits for ever.
 *
 * Lists are checked where they are made, so this is for tests and tools. MIMO_ERR_ARGUMENT has the
 * first node that breaks a rule.
 */
MIMO_API mimo_status mimo_nodes_check(const mimo_nodes *nodes);

/** When a node runs, where every lane of every stage begins each node as soon as it may. */
typedef struct mimo_node_time {
    int64_t begin, end;
    int64_t multiprocessors; /* that a node of COMPUTE is sized for: all but those of lanes that
                                move beside it. Other lanes: the lane's. 0: they are not counted */
} mimo_node_time;

/** The times of a stage, into times[count]. With fewer multiprocessors a node of COMPUTE takes
 *  longer in proportion. Thread-safe. MIMO_ERR_ARGUMENT: no such stage. */
MIMO_API mimo_status mimo_nodes_times(mimo_node_time *times, const mimo_nodes *nodes,
                                      int64_t stage);

typedef struct mimo_nodes_report {
    size_t size;     /* set by the initializer */
    int64_t time;    /* until the last lane of the last stage has ended */
    int64_t local;   /* the same with exchanges that take no time */
    int64_t serial;  /* the same with exchanges in the lane COMPUTE: nothing is hidden */
    int64_t hidden;  /* of the exchanges, in thousandths: 1 - (time - local) / (serial - local).
                              0 where there are none; below 0 where more is lost than hidden */
    int64_t ceiling; /* what hiding all of them would save of `serial`, in thousandths */
    int64_t lanes;   /* multiprocessors of all lanes that wait, on the stage with the most */
} mimo_nodes_report;

#define MIMO_NODES_REPORT_INIT                      \
    {                                               \
        sizeof(mimo_nodes_report), 0, 0, 0, 0, 0, 0 \
    }

MIMO_API void mimo_nodes_report_init(mimo_nodes_report *out, size_t size);

/** Sum nodes up. `out` starts from its _INIT. */
MIMO_API mimo_status mimo_nodes_report_of(mimo_nodes_report *out, const mimo_nodes *nodes);

/** Write nodes to a stream: MIMO_SCHEDULE_TEXT is a line a step, "stage 0, F1: f.pre_process f.pre0
 *  ...", with f. for the forward half and b. for the other; MIMO_SCHEDULE_SVG a timeline with a row
 *  a lane; MIMO_SCHEDULE_TRACE has a thread a lane. Errors: MIMO_ERR_ARGUMENT (another format),
 *  MIMO_ERR_IO. */
MIMO_API mimo_status mimo_nodes_print(FILE *stream, const mimo_nodes *nodes,
                                      mimo_schedule_format format);

/** The same as text, as mimo_schedule_text. */
MIMO_API mimo_status mimo_nodes_text(int64_t *length, char *text, int64_t capacity,
                                     const mimo_nodes *nodes, mimo_schedule_format format);

/** When the nodes of a run ran, for a picture of it beside that of its plan. */
typedef struct mimo_nodes_run {
    size_t size; /* set by the initializer */
    /* times[stage][i] of node i of each stage's list, from the run's start on, in any unit;
     * borrowed. Multiprocessors that are 0 are not written */
    const mimo_node_time *const *times;
    const char *unit; /* of times, such as "us": 1 to 15 letters; borrowed; NULL: none is written */
} mimo_nodes_run;

#define MIMO_NODES_RUN_INIT                \
    {                                      \
        sizeof(mimo_nodes_run), NULL, NULL \
    }

MIMO_API void mimo_nodes_run_init(mimo_nodes_run *out, size_t size);

/** Write a run as mimo_nodes_print does a plan, in one of the formats that have times:
 *  MIMO_SCHEDULE_SVG and MIMO_SCHEDULE_TRACE. Errors: MIMO_ERR_ARGUMENT (another format, NULL, a
 *  node that begins before the start or ends before it begins, a unit that is not letters),
 *  MIMO_ERR_IO. */
MIMO_API mimo_status mimo_nodes_print_run(FILE *stream, const mimo_nodes *nodes,
                                          mimo_schedule_format format, const mimo_nodes_run *run);

/** A hash of lists and of the lanes' multiprocessors, not of costs, for ranks to compare. */
MIMO_API uint64_t mimo_nodes_hash(const mimo_nodes *nodes);

#endif

MIMO_END_DECLS

#endif
