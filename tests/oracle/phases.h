/* The phases of a comparison, in order: name, limit of the relative L2 error of each tensor in f32,
 * meaning. The first phase that fails shows where the bug is. */
#ifndef ORACLE_PHASES_H
#define ORACLE_PHASES_H

#define ORACLE_PHASE_LIST(X)                                                                       \
    X(PHASE_RUN, "run", 0, "every call succeeds on every rank, and no unknown tensor comes out")   \
    X(PHASE_INITIAL, "initial", 1e-7, "initial parameters")                                        \
    X(PHASE_ENCODER, "encoder", 1e-5, "encoder: input, layer outputs, rows for the LLM")           \
    X(PHASE_BRIDGE, "bridge", 1e-5, "image rows after the bridge, on their LLM ranks")             \
    X(PHASE_ALIGNMENT, "alignment", 1e-5, "image and text rows merged by the ids")                 \
    X(PHASE_INPUT, "input", 1e-5, "LLM input: after the cp and sp split, with positions")          \
    X(PHASE_ROUTER, "router", 1e-5, "routers: scores, weights of the experts, balance")            \
    X(PHASE_CHOICE, "choice", 1e-12, "experts that routers choose, except in near ties")           \
    X(PHASE_DISPATCH, "dispatch", 1e-12, "rows and weights at the experts: bits of the sender's")  \
    X(PHASE_EXPERTS, "experts", 1e-5, "inside of the experts")                                     \
    X(PHASE_COMBINE, "combine", 1e-5, "what mixtures give back to the tokens")                     \
    X(PHASE_LAYERS, "layers", 1e-5, "LLM layer outputs")                                           \
    X(PHASE_LOGITS, "logits", 1e-5, "logits")                                                      \
    X(PHASE_LOSSES, "losses", 1e-5, "loss of every token")                                         \
    X(PHASE_LOSS, "loss", 1e-5, "mean loss, and number of tokens N")                               \
    X(PHASE_ROWS_BACK, "rows-back", 1e-5, "gradient of the encoder's rows, after the bridge")      \
    X(PHASE_GRADIENTS, "gradients", 1e-5, "gradient of every parameter, before clipping and step") \
    X(PHASE_NORM, "norm", 1e-5, "norm of all gradients together")                                  \
    X(PHASE_SGD, "sgd", 3e-6, "weights after one SGD step at lr 1")                                \
    X(PHASE_ADAMW, "adamw", 3e-6, "weights after five AdamW steps")                                \
    X(PHASE_EXCHANGES, "exchanges", 1e-12, "calls and bytes between ranks: those of the formula")  \
    X(PHASE_SCHEDULE, "schedule", 1e-12, "steps of the schedule, and hops between stages")         \
    X(PHASE_ADAPTER, "adapter", 1e-12, "adapters in their files, and as ranks get them back")      \
    X(PHASE_MERGED, "merged", 1e-6, "logits of adapters merged into weights, and bits after that") \
    X(PHASE_MODEL, "model", 1e-5, "the trainer's whole model: gradients, loss, exchanges")

typedef enum oracle_phase {
#define ORACLE_PHASE_ENUM(id, name, limit, meaning) id,
    ORACLE_PHASE_LIST(ORACLE_PHASE_ENUM)
#undef ORACLE_PHASE_ENUM
        ORACLE_PHASES
} oracle_phase;

typedef struct oracle_phase_row {
    const char *name;
    double limit;
    const char *meaning;
} oracle_phase_row;

extern const oracle_phase_row oracle_phase_rows[ORACLE_PHASES];

#endif
