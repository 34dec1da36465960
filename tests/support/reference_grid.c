#include "reference_grid.h"

#include <stdlib.h>
#include <string.h>

enum { NAME = 32 };

/* Each call gets the next "name=size" in order, of "x=2:copies" as well. Returns false at the end.
 * Millions of calls a test: sscanf took half of the time of the plan's tests. */
static bool next_dim(const char **spec, char *name, int64_t *size)
{
    const char *equals = strchr(*spec, '=');
    if (!equals || equals == *spec || equals - *spec >= NAME)
        return false;
    memcpy(name, *spec, (size_t)(equals - *spec));
    name[equals - *spec] = '\0';
    char *end;
    *size = strtoll(equals + 1, &end, 10);
    end += strcspn(end, ",");
    *spec = *end == ',' ? end + 1 : end;
    return true;
}

int64_t ref_coord(const char *spec, const char *dim, int64_t rank)
{
    char name[NAME];
    int64_t size;
    while (next_dim(&spec, name, &size)) {
        if (strcmp(name, dim) == 0)
            return rank % size;
        rank /= size;
    }
    return 0;
}

int64_t ref_size(const char *spec, const char *dim)
{
    char name[NAME];
    int64_t size;
    while (next_dim(&spec, name, &size))
        if (strcmp(name, dim) == 0)
            return size;
    return 1;
}

int64_t ref_ranks(const char *spec)
{
    char name[NAME];
    int64_t size, ranks = 1;
    while (next_dim(&spec, name, &size))
        ranks *= size;
    return ranks;
}

int64_t ref_position(const char *spec, int64_t rank, int64_t seq, bool sp, int64_t i)
{
    int64_t cp = ref_size(spec, "cp"), c = ref_coord(spec, "cp", rank);
    int64_t tp = ref_size(spec, "tp"), t = ref_coord(spec, "tp", rank);
    if (sp)
        i += t * (seq / (cp * tp));
    if (cp == 1)
        return i;
    int64_t length = seq / (2 * cp);
    return i < length ? c * length + i : (2 * cp - 1 - c) * length + (i - length);
}

uint64_t ref_word(uint64_t seed, int64_t sample, int64_t position, int64_t element)
{
    uint64_t x = ((uint64_t)sample << 42) ^ ((uint64_t)position << 21) ^ (uint64_t)element;
    x += seed * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

void ref_store(void *to, uint64_t word, int64_t bytes)
{
    unsigned char *byte = to;
    memcpy(byte, &word, (size_t)bytes);
    byte[bytes - 1] &= 0x3f; /* not negative, exponent not all ones */
    byte[0] |= 1;            /* not zero */
}
