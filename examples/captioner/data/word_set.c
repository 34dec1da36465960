#include "captioner/data/word_set.h"

#include <stdlib.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

static bool separates(char byte)
{
    return byte == ' ' || byte == ':' || byte == ',';
}

/* The next word from *at on, which moves behind it; returns its bytes, 0 where there is none. */
static size_t next_word(const char **word, const char *name, size_t length, size_t *at)
{
    while (*at < length && separates(name[*at]))
        ++*at;
    *word = name + *at;
    while (*at < length && !separates(name[*at]))
        ++*at;
    return (size_t)(name + *at - *word);
}

mimo_status word_set_reserve(word_set *out, int64_t bytes)
{
    /* Names may be one letter long, so a byte may be a word. */
    return memory_reserve(&out->hashes, bytes, sizeof *out->hashes);
}

void word_set_add(word_set *set, const char *name, size_t length)
{
    const char *word;
    size_t at = 0, bytes;
    while ((bytes = next_word(&word, name, length, &at)) > 0)
        set->hashes[set->count++] = hash_bytes(HASH_START, word, bytes);
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

void word_set_sort(word_set *set)
{
    if (set->count > 0)
        qsort(set->hashes, (size_t)set->count, sizeof *set->hashes, by_value);
}

static bool has(const word_set *set, const char *word, size_t bytes)
{
    uint64_t hash = hash_bytes(HASH_START, word, bytes);
    return set->count > 0 &&
           bsearch(&hash, set->hashes, (size_t)set->count, sizeof hash, by_value) != NULL;
}

bool word_set_covers(const word_set *set, const char *name, size_t length)
{
    const char *word;
    size_t at = 0, bytes, words = 0;
    for (; (bytes = next_word(&word, name, length, &at)) > 0; words++)
        if (!has(set, word, bytes))
            return false;
    return words > 0;
}

void word_set_release(word_set *set)
{
    memory_release(set->hashes);
    *set = (word_set){0};
}
