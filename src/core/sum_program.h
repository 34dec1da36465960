/*
 * Programs of sums: the order of up to 14 additions in one or two words, for kernels that keep open
 * values in registers.
 *
 * A program lists leaves in the order in which they are *visited*:
 *
 *   the first leaf becomes the top value
 *   any other      opens: the top value goes below, the leaf becomes the top. Then `adds` times:
 *                  the top becomes the sum of the two uppermost values
 *
 * At a node of the tree, the side that needs more open values is visited first. A sum of two values
 * has the same bits in both orders, so the result is that of the tree. And at most two values are
 * below the top: a third one takes 16 leaves.
 *
 *   one word, up to 8 leaves    visit v: bits 6v to 6v + 2 its leaf, the next 3 its adds
 *                               bits 48 to 51: the number of leaves; 52 to 55: the ordinal
 *   two words, up to 14 leaves  visit v: in word v / 7, bits 8 (v % 7) on: 4 its leaf, 4 its adds
 *                               word 0, bits 56 to 59: the number of leaves; 60 to 63: the ordinal
 *   both                        the highest bit of the last word: LOST
 *
 * What a leaf, the ordinal and LOST stand for is the business of the program's table.
 */
#ifndef MIMO_CORE_SUM_PROGRAM_H
#define MIMO_CORE_SUM_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/sum_tree.h"

enum {
    MIMO_PROGRAM_LEAVES_1 = 8,  /* the most of a program of one word */
    MIMO_PROGRAM_LEAVES_2 = 14, /* of two words */
    MIMO_PROGRAM_BELOW = 2,     /* the most values below the top */
};

#define MIMO_PROGRAM_LOST (UINT64_C(1) << 63)

/* ------------------------------------- reading -------------------------------------- */

/* `program` has `words` words. */
static inline MIMO_HOST_AND_DEVICE int mimo_program_leaves(const uint64_t *program, int words)
{
    return (int)(program[0] >> (words == 1 ? 48 : 56)) & 15;
}

static inline MIMO_HOST_AND_DEVICE int mimo_program_ordinal(const uint64_t *program, int words)
{
    return (int)(program[0] >> (words == 1 ? 52 : 60)) & 15;
}

static inline MIMO_HOST_AND_DEVICE bool mimo_program_lost(const uint64_t *program, int words)
{
    return (program[words - 1] & MIMO_PROGRAM_LOST) != 0;
}

/* Of visit v. */
static inline MIMO_HOST_AND_DEVICE int mimo_program_leaf(const uint64_t *program, int words, int v)
{
    if (words == 1)
        return (int)(program[0] >> 6 * v) & 7;
    return (int)((v < 7 ? program[0] : program[1]) >> 8 * (v % 7)) & 15;
}

static inline MIMO_HOST_AND_DEVICE int mimo_program_adds(const uint64_t *program, int words, int v)
{
    if (words == 1)
        return (int)(program[0] >> (6 * v + 3)) & 7;
    return (int)((v < 7 ? program[0] : program[1]) >> (8 * (v % 7) + 4)) & 15;
}

/* ------------------------------------- making --------------------------------------- */

/* Leaves 0, 1, ... of the tree, from the left to the right. Numbers are packed, so that a kernel
 * keeps them in registers though it indexes them. A *group* is a subtree whose leaves were all
 * appended; groups that wait for their sibling are open, each right of the one before. All zero at
 * first.
 *
 * `most` of the following functions is a constant, at least the number of leaves. Up to 8 of them
 * take words of 32 bits. */
typedef struct mimo_program_maker {
    uint64_t visit, adds;       /* 4 bits a leaf: its visit, counted in its group; its adds */
    uint64_t first, last, need; /* 4 bits an open group: its first leaf; the leaf that it visits
                                   last; the most values that it holds at once, less one */
    uint64_t gap, high_gap;     /* 8 bits an open group, of 0 to 7 and of 8 to 15: the gap before */
    int open, leaves;
} mimo_program_maker;

static inline MIMO_HOST_AND_DEVICE int mimo_program_nibble(uint64_t packed, int i, const int most)
{
    return (most <= 8 ? (int)((uint32_t)packed >> 4 * i) : (int)(packed >> 4 * i)) & 15;
}

static inline MIMO_HOST_AND_DEVICE uint64_t mimo_program_with(uint64_t packed, int i, int value,
                                                              const int most)
{
    if (most <= 8)
        return ((uint32_t)packed & ~((uint32_t)15 << 4 * i)) | (uint32_t)value << 4 * i;
    return (packed & ~((uint64_t)15 << 4 * i)) | (uint64_t)value << 4 * i;
}

/* `value` in `count` nibbles from `first` on; count > 0. */
static inline MIMO_HOST_AND_DEVICE uint64_t mimo_program_each(int first, int count, int value,
                                                              const int most)
{
    if (most <= 8)
        return (UINT32_C(0x11111111) >> 4 * (8 - count) << 4 * first) * (uint32_t)value;
    return (UINT64_C(0x1111111111111111) >> 4 * (16 - count) << 4 * first) * (uint64_t)value;
}

/* One sibling of the two: leaves [first, first + count). */
typedef struct mimo_program_side {
    int first, count, last, need;
} mimo_program_side;

static inline MIMO_HOST_AND_DEVICE mimo_program_side
mimo_program_side_of(const mimo_program_maker *it, int group, int end, const int most)
{
    const int first = mimo_program_nibble(it->first, group, most);
    const mimo_program_side side = {first, end - first, mimo_program_nibble(it->last, group, most),
                                    mimo_program_nibble(it->need, group, most)};
    return side;
}

/* Join the last two open groups. */
static inline MIMO_HOST_AND_DEVICE void mimo_program_join(mimo_program_maker *it, const int most)
{
    const int group = --it->open - 1;
    const mimo_program_side right = mimo_program_side_of(it, group + 1, it->leaves, most);
    const mimo_program_side left = mimo_program_side_of(it, group, right.first, most);
    const bool left_first = left.need >= right.need;
    const mimo_program_side one = left_first ? left : right, two = left_first ? right : left;
    it->visit += mimo_program_each(two.first, two.count, one.count, most);
    it->adds += mimo_program_each(two.last, 1, 1, most);
    it->last = mimo_program_with(it->last, group, two.last, most);
    it->need = mimo_program_with(it->need, group, one.need + (one.need == two.need), most);
}

static inline MIMO_HOST_AND_DEVICE int mimo_program_gap(const mimo_program_maker *it, int group)
{
    return (int)((group < 8 ? it->gap : it->high_gap) >> 8 * (group % 8)) & 255;
}

static inline MIMO_HOST_AND_DEVICE void mimo_program_set_gap(mimo_program_maker *it, int group,
                                                             int gap)
{
    const int at = 8 * (group % 8);
    const uint64_t keep = ~((uint64_t)255 << at), value = (uint64_t)gap << at;
    if (group < 8)
        it->gap = (it->gap & keep) | value;
    else
        it->high_gap = (it->high_gap & keep) | value;
}

/* Append a leaf; `gap` is the one behind it, 0 behind the last leaf. Behind a leaf, an open group
 * is joined with the one before it where the gap between them is not smaller than `gap`
 * (dispatch/route/sum_order.c says why). */
static inline MIMO_HOST_AND_DEVICE void mimo_program_append(mimo_program_maker *it, int gap,
                                                            const int most)
{
    const int group = it->open++, leaf = it->leaves++;
    it->first = mimo_program_with(it->first, group, leaf, most);
    it->last = mimo_program_with(it->last, group, leaf, most);
    it->need = mimo_program_with(it->need, group, 0, most);
    while (it->open > 1 && mimo_program_gap(it, it->open - 1) >= gap)
        mimo_program_join(it, most);
    if (it->open < most)
        mimo_program_set_gap(it, it->open, gap);
}

/* Write that leaf n of the tree is `leaf`, to a program that began as zeros. After the last
 * append. */
static inline MIMO_HOST_AND_DEVICE void mimo_program_name_leaf(uint64_t *program, int words,
                                                               const mimo_program_maker *it, int n,
                                                               int leaf, const int most)
{
    const int v = mimo_program_nibble(it->visit, n, most);
    const int adds = mimo_program_nibble(it->adds, n, most);
    if (words == 1) {
        program[0] |= (uint64_t)(leaf | adds << 3) << 6 * v;
        return;
    }
    const uint64_t bits = (uint64_t)(leaf | adds << 4) << 8 * (v % 7);
    if (v < 7)
        program[0] |= bits;
    else
        program[1] |= bits;
}

/* Write the other fields. */
static inline MIMO_HOST_AND_DEVICE void mimo_program_close(uint64_t *program, int words, int leaves,
                                                           int ordinal, bool lost)
{
    program[0] |= (uint64_t)(leaves | ordinal << 4) << (words == 1 ? 48 : 56);
    program[words - 1] |= lost ? MIMO_PROGRAM_LOST : 0;
}

#endif
