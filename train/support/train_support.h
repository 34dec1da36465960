/*
 * Small tools of the trainer and of the programs that train. They use only the library's public
 * headers: checks, sizes that can't overflow, a hash.
 *
 *   TRY(call)                            return the status of a failing call as it is
 *   TRY_GOTO(status, label, call)        the same where something must be released
 *   CHECK(condition, status, format...)  fail with a sentence unless the condition holds
 */
#ifndef TRAIN_SUPPORT_H
#define TRAIN_SUPPORT_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>

#include <mimo/status.h>

#define TRY(call)                        \
    do {                                 \
        mimo_status try_status = (call); \
        if (try_status != MIMO_OK)       \
            return try_status;           \
    } while (0)

#define TRY_GOTO(status, label, call) \
    do {                              \
        (status) = (call);            \
        if ((status) != MIMO_OK)      \
            goto label;               \
    } while (0)

/* The macro returns the status itself. The compiler can't see that mimo_fail returns its argument,
 * and would warn that a caller reads a variable that was not set. */
#define CHECK(condition, status, ...)                  \
    do {                                               \
        if (!(condition)) {                            \
            const mimo_status check_status = (status); \
            mimo_fail(check_status, __VA_ARGS__);      \
            return check_status;                       \
        }                                              \
    } while (0)

/** Put a sentence in front of the last error and return `status`. */
MIMO_PRINTF(2, 3) mimo_status fail_prefix(mimo_status status, const char *format, ...);

static inline mimo_status size_mul(int64_t *out, int64_t a, int64_t b)
{
    CHECK(!__builtin_mul_overflow(a, b, out), MIMO_ERR_OVERFLOW,
          "%" PRId64 " * %" PRId64 " does not fit 64 bits", a, b);
    return MIMO_OK;
}

static inline mimo_status size_add(int64_t *out, int64_t a, int64_t b)
{
    CHECK(!__builtin_add_overflow(a, b, out), MIMO_ERR_OVERFLOW,
          "%" PRId64 " + %" PRId64 " does not fit 64 bits", a, b);
    return MIMO_OK;
}

/* Sample files, the cache's names and the order of samples depend on the hashes: they never
 * change. */
#define HASH_START UINT64_C(0xcbf29ce484222325)

/** The splitmix64 finaliser: injective on 64 bits. */
static inline uint64_t hash_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint64_t hash_int(uint64_t hash, int64_t value)
{
    return hash_mix(hash + UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)value);
}

static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
    return hash_int(hash, (int64_t)bytes);
}

#endif
