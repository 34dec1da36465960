/*
 * adapter_config.json of a LoRA adapter, as PEFT writes and reads it.
 *
 * What is written is, byte for byte, Python's json.dumps(indent=2, sort_keys=True) of the same
 * values. Of a file that is read, five values matter: r, lora_alpha, use_rslora, target_modules,
 * and "mimo_bridge" with the hashes. PEFT ignores that one, with a warning. Other keys are taken
 * where they are known to change nothing, with the values that change nothing. Any other key is
 * refused, with the file, the key and the value in the sentence: each release of PEFT adds some
 * that change what an adapter computes. A value of null asks for nothing, whatever the key.
 *
 * All functions are local: every rank reads the same file and comes to the same result.
 */
#ifndef TRAIN_ADAPTER_CONFIG_H
#define TRAIN_ADAPTER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mimo/status.h>

#include "train/support/input_file.h"

enum { ADAPTER_MOST_RANK = 1024, ADAPTER_HASH_DIGITS = 16 };

/* Hexadecimal digits. Empty: not known, as in files of other programs. */
typedef char adapter_hash[ADAPTER_HASH_DIGITS + 1];

/* The one target that stands for every linear layer. */
#define ADAPTER_ALL_LINEAR "all-linear"

struct adapter_config {
    int64_t rank; /* 1 to ADAPTER_MOST_RANK */
    double alpha; /* finite */
    bool rslora;  /* the scale is alpha / sqrt(rank) instead of alpha / rank */

    /* Suffixes of layer names, printable UTF-8, sorted by bytes, each once; or the single text
     * ADAPTER_ALL_LINEAR, which the file has as a string instead of a list. */
    const char *const *targets;
    int64_t target_count; /* at least 1 */

    adapter_hash base;    /* of the weights that the adapter was trained on */
    adapter_hash tensors; /* of the file beside this one */
};

/** Whether the first `length` letters of a layer's name, or of a target, are a router's: they are
 *  "router" or end with ".router". Routers have no adapters here. PEFT's "all-linear" gives them
 *  some, whose B is 0 until they are trained. Pure. */
bool adapter_is_router(const char *name, size_t length);

void adapter_hash_print(adapter_hash out, uint64_t hash);

/** The text of the file, without a newline at the end. The caller releases it with memory_release.
 *  MIMO_ERR_ARGUMENT (the comments above say what each value may be), MIMO_ERR_MEMORY. */
mimo_status adapter_config_text(char **out, const struct adapter_config *config);

/** Understand the text of a file; `path` is for sentences. The caller releases *out, targets
 *  included, with memory_release, as one piece. Repeated targets are kept once. Routers are left
 *  out (adapter_is_router): PEFT makes a list of its "all-linear", with routers in it.
 *
 *  Errors: MIMO_ERR_IO (no JSON object; a value that is missing, of another type, or out of range),
 *  MIMO_ERR_UNSUPPORTED (an adapter of another kind than this program has; a key that is not known;
 *  targets that are all routers), MIMO_ERR_MEMORY. On failure *out stays as it was. */
mimo_status adapter_config_parse(struct adapter_config **out, const char *text, int64_t length,
                                 const char *path);

/** Read and understand the file at `path`. *content is what it holds; NULL: nobody asks. The same
 *  errors, and MIMO_ERR_NOT_FOUND. */
mimo_status adapter_config_read(struct adapter_config **out, struct file_content *content,
                                const char *path);

#endif
