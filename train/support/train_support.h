/*
 * Small tools of the trainer and of the programs that train: those of the library's core, for
 * sources that include no private header.
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

/** *out = a * b, or a + b. MIMO_ERR_OVERFLOW with the numbers. */
mimo_status size_mul(int64_t *out, int64_t a, int64_t b);
mimo_status size_add(int64_t *out, int64_t a, int64_t b);

/* Sample files, the cache's names and the order of samples depend on the hashes: they never
 * change. */
#define HASH_START UINT64_C(0xcbf29ce484222325)

/** The splitmix64 finaliser: injective on 64 bits. */
uint64_t hash_mix(uint64_t x);
uint64_t hash_int(uint64_t hash, int64_t value);
uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes);

/** Floats of 16 bits as f32, which holds them all. */
float widen_bf16(uint16_t half);
float widen_f16(uint16_t half);

/** The f32 that has these bits. */
float bits_float(uint32_t bits);

#endif
