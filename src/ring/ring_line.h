/*
 * A line: 128 aligned bytes that one thread writes while others, also of other processes, read.
 * Neither waits for the other. A number stands before the payload and behind it, and the writer
 * counts it up, first the one before. A reader goes the other way: it reads the number behind, then
 * the payload, then the number before. Where the two numbers are equal, the payload is whole.
 *
 * Why: say that the reader has a word of the write n + 1. The writer had stored n + 1 before, and
 * its release fence lies between. The reader's acquire fence lies between that word and its look at
 * the number before. So it sees at least n + 1 there, and behind it had seen n at most.
 *
 * A writer that dies in the middle leaves two different numbers for good: that line is never read.
 */
#ifndef MIMO_RING_RING_LINE_H
#define MIMO_RING_RING_LINE_H

#include <stdbool.h>
#include <string.h>

#include "ring/ring_call.h"

/* TSan does not follow fences. All accesses here are atomic, so it has nothing to report. */
#if defined(__SANITIZE_THREAD__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

typedef struct mimo_ring_line {
    uint64_t before;
    uint64_t words[MIMO_RING_WORDS];
    uint64_t behind;
} __attribute__((aligned(128))) mimo_ring_line;

_Static_assert(sizeof(mimo_ring_line) == 128, "a line is 128 bytes");
_Static_assert(sizeof(mimo_ring_call) == MIMO_RING_PAYLOAD, "a call fills a line");
_Static_assert(sizeof(mimo_ring_wait) == MIMO_RING_PAYLOAD, "a wait fills a line");

static inline uint64_t mimo_ring_load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void mimo_ring_store(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* Write the payload behind a number that stands before it already. */
static inline void mimo_ring_line_fill(mimo_ring_line *line, uint64_t number, const void *payload)
{
    uint64_t words[MIMO_RING_WORDS];
    memcpy(words, payload, sizeof words);
    __atomic_thread_fence(__ATOMIC_RELEASE);
#pragma GCC unroll 14
    for (int i = 0; i < MIMO_RING_WORDS; i++)
        mimo_ring_store(&line->words[i], words[i]);
    __atomic_store_n(&line->behind, number, __ATOMIC_RELEASE);
}

/* For a line that no other thread writes. */
static inline void mimo_ring_line_write(mimo_ring_line *line, const void *payload)
{
    uint64_t number = mimo_ring_load(&line->before) + 1;
    mimo_ring_store(&line->before, number);
    mimo_ring_line_fill(line, number, payload);
}

/* For a line that another thread may have begun to write long ago, and not ended. False, and
 * nothing is written, where it has. */
static inline bool mimo_ring_line_claim(mimo_ring_line *line, uint64_t number, const void *payload)
{
    uint64_t behind = mimo_ring_load(&line->behind);
    if (!__atomic_compare_exchange_n(&line->before, &behind, number, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return false;
    mimo_ring_line_fill(line, number, payload);
    return true;
}

enum { MIMO_RING_TRIES = 3 };

/* The number of the payload; 0: nothing was written yet, or each try met a writer. */
static inline uint64_t mimo_ring_line_read(void *payload, const mimo_ring_line *line)
{
    uint64_t words[MIMO_RING_WORDS];
    for (int attempt = 0; attempt < MIMO_RING_TRIES; attempt++) {
        uint64_t number = __atomic_load_n(&line->behind, __ATOMIC_ACQUIRE);
        for (int i = 0; i < MIMO_RING_WORDS; i++)
            words[i] = mimo_ring_load(&line->words[i]);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (mimo_ring_load(&line->before) == number) {
            memcpy(payload, words, sizeof words);
            return number;
        }
    }
    return 0;
}

#endif
