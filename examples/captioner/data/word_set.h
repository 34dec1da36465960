/* The words of many names, to ask whether another name has only words of these. A word ends at a
 * space, a colon or a comma: "man: light skin tone, beard" has five. */
#ifndef CAPTIONER_WORD_SET_H
#define CAPTIONER_WORD_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mimo/status.h>

typedef struct word_set {
    int64_t count;
    uint64_t *hashes;
} word_set;

/** Room for the words of names that have `bytes` bytes together. The caller zeroes *out before and
 *  calls word_set_release after, whatever the result. */
mimo_status word_set_reserve(word_set *out, int64_t bytes);

/** Once all names are added, sort before the first question. */
void word_set_add(word_set *set, const char *name, size_t length);
void word_set_sort(word_set *set);

/** Whether a name has words, and the set all of them. */
bool word_set_covers(const word_set *set, const char *name, size_t length);

void word_set_release(word_set *set);

#endif
