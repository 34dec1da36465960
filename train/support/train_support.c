#include "train/support/train_support.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/checked.h"
#include "core/float16.h"
#include "core/hash.h"

_Static_assert(HASH_START == MIMO_HASH_START, "files hold hashes that begin there");

mimo_status fail_prefix(mimo_status status, const char *format, ...)
{
    char prefix[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    return mimo_fail_prefix(status, "%s", prefix);
}

mimo_status size_mul(int64_t *out, int64_t a, int64_t b)
{
    return mimo_mul(out, a, b);
}

mimo_status size_add(int64_t *out, int64_t a, int64_t b)
{
    return mimo_add(out, a, b);
}

uint64_t hash_mix(uint64_t x)
{
    return mimo_mix64(x);
}

uint64_t hash_int(uint64_t hash, int64_t value)
{
    return mimo_hash_int(hash, value);
}

uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    return mimo_hash_bytes(hash, data, bytes);
}

float widen_bf16(uint16_t half)
{
    return mimo_bf16_to(half);
}

float widen_f16(uint16_t half)
{
    return mimo_f16_to(half);
}

float bits_float(uint32_t bits)
{
    return mimo_bits_float(bits);
}
