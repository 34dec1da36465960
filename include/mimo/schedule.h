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

#endif

MIMO_END_DECLS

#endif
