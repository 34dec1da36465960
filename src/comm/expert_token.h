/*
 * What the kernels of a route find out about one token: its pairs in the order of a tile, and the
 * programs of its sums. Inline functions, which a test on the host calls as well.
 *
 * `most` is a constant: the largest k that the caller is compiled for. So a kernel keeps the arrays
 * in registers.
 */
#ifndef MIMO_COMM_EXPERT_TOKEN_H
#define MIMO_COMM_EXPERT_TOKEN_H

#include "comm/expert_memory.h"
#include "core/sum_program.h"

enum { MIMO_TOKEN_NONE = 0xffff }; /* an id, or an x, of no pair */

/* The pairs of a token, in ascending (expert, choice); keys of no pairs come last. */
typedef struct mimo_token {
    uint32_t key[MIMO_EXPERT_MOST_TOP_K];
    int pairs;
} mimo_token;

/* Words of programs, by `most`: mimo_expert_shape.words. */
static inline MIMO_HOST_AND_DEVICE int mimo_words_of(const int most)
{
    return most <= MIMO_PROGRAM_LEAVES_1 ? 1 : 2;
}

/* The x of an expert. */
static inline MIMO_HOST_AND_DEVICE int mimo_expert_x(const mimo_expert_shape *shape, int expert)
{
    return (int)mimo_divide((uint32_t)expert, shape->by_held);
}

static inline MIMO_HOST_AND_DEVICE int mimo_key_expert(uint32_t key)
{
    return (int)(key >> 4);
}

static inline MIMO_HOST_AND_DEVICE int mimo_key_choice(uint32_t key)
{
    return (int)(key & 15);
}

/* Sort by swaps of neighbours: `most` rounds. */
static inline MIMO_HOST_AND_DEVICE void mimo_token_sort(mimo_token *token, const int most)
{
    MIMO_UNROLL
    for (int round = 0; round < most; round++) {
        MIMO_UNROLL
        for (int i = round % 2; i < most - 1; i += 2) {
            const uint32_t a = token->key[i], b = token->key[i + 1];
            token->key[i] = a < b ? a : b;
            token->key[i + 1] = a < b ? b : a;
        }
    }
}

/* ids[top_k]: those of the token. */
static inline MIMO_HOST_AND_DEVICE void mimo_token_read(mimo_token *out, const uint16_t *ids,
                                                        int top_k, const int most)
{
    out->pairs = 0;
    MIMO_UNROLL
    for (int j = 0; j < most; j++) {
        const uint32_t id = j < top_k ? ids[j] : MIMO_TOKEN_NONE;
        out->key[j] = id == MIMO_TOKEN_NONE ? UINT32_MAX : id << 4 | (uint32_t)j;
        out->pairs += id != MIMO_TOKEN_NONE;
    }
    mimo_token_sort(out, most);
}

/* The gap between two rows of one rank, of experts a <= b, which are numbered from its first. */
static inline MIMO_HOST_AND_DEVICE int mimo_partial_gap(int a, int b, int held)
{
    return a == b ? (int)MIMO_SUM_SAME_PLACE : mimo_sum_gap(a, b, held);
}

/* The sum of the rows that the token has on the ranks of x: rows of an expert one after the other,
 * experts by the tree over those of x. program[words]. */
static inline MIMO_HOST_AND_DEVICE void mimo_partial_program(uint64_t *program,
                                                             const mimo_token *token,
                                                             const mimo_expert_shape *shape, int x,
                                                             bool lost, const int most)
{
    const int first = x * shape->held, end = first + shape->held, words = mimo_words_of(most);
    mimo_program_maker maker = {0};
    int below = 0, ordinal = 0, last = -1;
    MIMO_UNROLL
    for (int n = 0; n < most; n++) {
        const int e = mimo_key_expert(token->key[n]);
        const int next = n + 1 < most ? mimo_key_expert(token->key[n + 1]) : end;
        if (e < first) {
            const int of = mimo_expert_x(shape, e);
            ordinal += of != last;
            last = of;
            below++;
        } else if (e < end)
            mimo_program_append(
                &maker, next < end ? mimo_partial_gap(e - first, next - first, shape->held) : 0,
                most);
    }
    MIMO_UNROLL
    for (int w = 0; w < words; w++)
        program[w] = 0;
    MIMO_UNROLL
    for (int n = 0; n < most; n++)
        if (n >= below && n - below < maker.leaves)
            mimo_program_name_leaf(program, words, &maker, n - below,
                                   mimo_key_choice(token->key[n]), most);
    if (maker.leaves > 0)
        mimo_program_close(program, words, maker.leaves, ordinal, lost);
}

/* Write that leaf n of the tree is leaf n of the program. */
static inline MIMO_HOST_AND_DEVICE void mimo_program_name_all(uint64_t *program, int words,
                                                              const mimo_program_maker *maker,
                                                              bool lost, const int most)
{
    MIMO_UNROLL
    for (int w = 0; w < words; w++)
        program[w] = 0;
    MIMO_UNROLL
    for (int n = 0; n < most; n++)
        if (n < maker->leaves)
            mimo_program_name_leaf(program, words, maker, n, n, most);
    if (maker->leaves > 0)
        mimo_program_close(program, words, maker->leaves, 0, lost);
}

/* The sum over the x that the token has pairs of. program[words]. */
static inline MIMO_HOST_AND_DEVICE void mimo_total_program(uint64_t *program,
                                                           const mimo_token *token,
                                                           const mimo_expert_shape *shape,
                                                           bool lost, const int most)
{
    mimo_program_maker maker = {0};
    int x = 0; /* of the pair before */
    MIMO_UNROLL
    for (int n = 0; n < most; n++) {
        const int next =
            n < token->pairs ? mimo_expert_x(shape, mimo_key_expert(token->key[n])) : x;
        if (n > 0 && next != x)
            mimo_program_append(&maker, mimo_sum_gap(x, next, shape->ep), most);
        x = next;
    }
    if (token->pairs > 0)
        mimo_program_append(&maker, 0, most);
    mimo_program_name_all(program, mimo_words_of(most), &maker, lost, most);
}

/* The sum over the ranks of one x. program[words]. */
static inline MIMO_HOST_AND_DEVICE void mimo_shared_program(uint64_t *program,
                                                            const mimo_expert_shape *shape)
{
    mimo_program_maker maker = {0};
    for (int t = 0; t < shape->etp; t++)
        mimo_program_append(&maker, t + 1 < shape->etp ? mimo_sum_gap(t, t + 1, shape->etp) : 0,
                            MIMO_EXPERT_MOST_ETP);
    mimo_program_name_all(program, shape->words, &maker, false, MIMO_EXPERT_MOST_ETP);
}

#endif
