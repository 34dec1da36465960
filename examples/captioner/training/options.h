/*
 * The command line of the captioner.
 *
 * Every rank parses the same words, so parsing never prints and never exits: it returns a status
 * and leaves one sentence, which the program prints once, on one rank, and then exits with status 2
 * on all of them.
 */
#ifndef CAPTIONER_OPTIONS_H
#define CAPTIONER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/dtype.h>
#include <mimo/schedule.h>

#include "tools/options/option_schedule.h"
#include "tools/options/option_table.h"
#include "train/nn/layers/nn_block_kind.h"

/* The most steps of a run, resumed ones included. */
#define OPTIONS_MOST_STEPS 1000000000

enum options_device { OPTIONS_CPU, OPTIONS_CUDA };

/* --progress: auto draws a bar where stderr is a terminal, which it never is under mpirun. */
enum options_progress { OPTIONS_PROGRESS_AUTO, OPTIONS_PROGRESS_BAR, OPTIONS_PROGRESS_LINES };

/* --log-hashes: of the whole model; --log-hashes=tensors: of each tensor as well. The last one is
 * gone when all flags are read: it becomes OPTIONS_HASHES with --log and --same-bits, otherwise
 * OPTIONS_NO_HASHES. */
enum options_hashes {
    OPTIONS_NO_HASHES,
    OPTIONS_HASHES,
    OPTIONS_TENSOR_HASHES,
    OPTIONS_HASHES_NOT_GIVEN
};

/* Texts belong to argv, or are constants. */
struct options {
    option_asked asked; /* --help and so on, in place of a run: see option_answer */

    const char *encoder; /* grids as mimo_grid_create_text reads them */
    const char *llm;
    bool sp; /* sequence parallelism over the LLM's tp */

    int64_t image_size; /* pixels a side, a multiple of the patch of 8 */
    int64_t seq;        /* tokens: image tokens, then the name */
    int64_t hidden;
    int64_t heads; /* divides hidden */
    int64_t encoder_layers;
    int64_t llm_layers;      /* 0: llm_pattern alone says it */
    const char *llm_pattern; /* NULL: not given */
    int64_t experts, top_k;  /* of the LLM's mixtures, in blocks 1, 3, ...; 0: there are none */
    int64_t capacity;        /* rows of a rank's experts in a call; 0: any choice fits */
    const char *expert_grid; /* which ranks share them; NULL: not given */

    int64_t steps;
    int64_t global_batch;
    int64_t micro_batches;      /* at most global_batch */
    option_schedule schedule;   /* of the LLM's stages */
    bool overlap;               /* a forward beside the backward of another micro-batch */
    int64_t encoder_pieces;     /* of the encoder's steps, under overlap; 0: not given */
    int64_t encoder_group;      /* micro-batches; 0: not given */
    int64_t encoder_alive;      /* groups; 0: no limit; -1: not given */
    const char *cost;           /* what steps take; NULL: not given */
    mimo_step_costs costs;      /* the same, over the library's */
    const char *node_cost;      /* what nodes take, under overlap; NULL: not given */
    mimo_node_costs node_costs; /* the same, over the library's */
    uint64_t seed;
    double lr;
    double decay;           /* of AdamW */
    unsigned augment;       /* kinds of changes to training samples (captions/augment.h) */
    int64_t least_images;   /* pictures of a training sample */
    int64_t most_images;    /* 0: not given, each has one */
    bool balance;           /* any rank encodes any picture */
    int64_t evaluate_every; /* steps from one look at the held-out samples to the next; 0: none */
    enum options_device device;
    mimo_dtype dtype;       /* of what crosses the bridge: MIMO_F32 or MIMO_BF16 */
    mimo_dtype precision;   /* of the factors of matrix products: the same two */
    int64_t shards, pairs;  /* V and C of the fixed order of additions; 0: the fast order */
    nn_recompute recompute; /* blocks save less for backward */

    const char *samples;    /* --samples; NULL: the cache of the installed font */
    const char *prepare;    /* render the samples into this file, then stop; NULL: train */
    const char *font;       /* NULL: the installed one */
    const char *emoji_test; /* NULL: the installed one */
    const char *names;      /* other names for the emoji; NULL: those of the list */
    const char *out;        /* folder of the pictures; NULL: no pictures */
    const char *log;        /* NULL: no log */
    enum options_hashes log_hashes;
    const char *save;   /* checkpoint to write at the end; NULL: none */
    bool megatron_keys; /* of the LLM's tensors in checkpoints that are written */
    int64_t save_every; /* steps between two checkpoints; 0: at the end alone */
    const char *resume; /* checkpoint to start from; NULL: none */
    const char
        *survive; /* --survive: "": the usual grids for those that are left; NULL: not given */
    int64_t save_memory; /* steps from one copy in memory to the next; 0: none */
    enum options_progress progress;

    int64_t lora_rank;        /* train adapters of this rank, the rest frozen; 0: not given */
    double lora_alpha;        /* 0: not given */
    bool lora_rslora;         /* scale alpha / sqrt(rank) */
    const char *lora_targets; /* suffixes of layer names, with commas; NULL: not given */
    const char *base;         /* checkpoint whose values the model starts from; NULL: none */
    const char *adapter;      /* adapter to start from; NULL: none */
    bool adapter_other_base;  /* take it whatever base it was trained on */
    const char *adapter_out;  /* where to write the adapter; NULL: nowhere */
    const char *merge;        /* where to write the merged model; NULL: nowhere */
};

/** Whether the options ask for adapters. */
bool options_have_adapters(const struct options *options);

/** The grid of experts, also where it is not given; NULL where there are none. */
const char *options_expert_grid(const struct options *options);

/** All options, a row for each. */
const option_table *options_table(void);

/* Parse argv[1 .. argc) over the defaults. MIMO_ERR_ARGUMENT, with one sentence that names the flag
 * and the value, for anything that is not understood, out of range or contradictory; *out is then
 * untouched. Grids are not parsed here. */
mimo_status options_parse(struct options *out, int argc, char **argv);

/* Parse words over options that were parsed before. The same errors; *options is then untouched. */
mimo_status options_parse_over(struct options *options, int argc, char **argv);

#endif
