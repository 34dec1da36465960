#include "ref_random.h"

#include <math.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t ref_bits(uint64_t key, int64_t index)
{
    return mix(key + 0x9e3779b97f4a7c15u + (uint64_t)index);
}

uint64_t ref_key(uint64_t seed, const char *name)
{
    uint64_t key = ref_bits(0xcbf29ce484222325u, (int64_t)seed);
    for (const char *letter = name; *letter; letter++)
        key = (key ^ (unsigned char)*letter) * 0x100000001b3u;
    return ref_bits(key, (int64_t)strlen(name));
}

static double uniform(uint64_t key, int64_t index)
{
    return ((double)(ref_bits(key, index) >> 11) + 1) / 9007199254740992.0;
}

double ref_uniform(uint64_t key, int64_t index)
{
    return 2 * uniform(key, index) - 1;
}

double ref_normal(uint64_t key, int64_t index)
{
    double radius = sqrt(-2 * log(uniform(key, 2 * index)));
    return radius * cos(6.283185307179586 * uniform(key, 2 * index + 1));
}
