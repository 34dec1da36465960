/*
 * Comparisons of tensors bit by bit. A failure says where the first wrong element is, and both
 * values:
 *
 *   EXPECT_BITS(bits_of(got, expected, bytes, element, columns), format...)    with Criterion
 *   MPI_EXPECT_BITS(...)                                                       the same on ranks
 *
 *   sbh f32, seed 3: row 5, column 2 is 0x3f800000, not 0x40000000; 17 of 96 elements differ
 *
 * `element` is the number of bytes of an element. `columns` is the number of elements of a row; 0
 * where there are no rows. A loop over elements notes each in a bit_report of its own.
 */
#ifndef MIMO_TESTS_SAME_BITS_H
#define MIMO_TESTS_SAME_BITS_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "guarded.h"

enum { BITS_ELEMENT = 16 }; /* bytes of an element that are shown at most */

typedef struct bit_report {
    int64_t element, columns; /* bytes of an element; elements of a row, or 0 */
    int64_t seen, wrong;      /* numbers of elements */
    int64_t first;            /* the first wrong one */
    unsigned char got[BITS_ELEMENT], expected[BITS_ELEMENT];
} bit_report;

/* Note element `at`: its bytes are `got`, and must be `expected`. */
static inline void bits_note(bit_report *report, int64_t at, const void *got, const void *expected)
{
    size_t element = (size_t)report->element;
    report->seen++;
    if (memcmp(got, expected, element) == 0 || report->wrong++ > 0)
        return;
    report->first = at;
    memcpy(report->got, got, element < BITS_ELEMENT ? element : BITS_ELEMENT);
    memcpy(report->expected, expected, element < BITS_ELEMENT ? element : BITS_ELEMENT);
}

static inline bit_report bits_of(const void *got, const void *expected, int64_t bytes,
                                 int64_t element, int64_t columns)
{
    bit_report report = {.element = element, .columns = columns};
    for (int64_t i = 0; i < bytes / element; i++)
        bits_note(&report, i, (const char *)got + i * element,
                  (const char *)expected + i * element);
    return report;
}

/* The bytes as a number, the highest byte first. */
static inline void bits_hex(char text[2 * BITS_ELEMENT + 3], const unsigned char *bytes,
                            int64_t count)
{
    size_t used = (size_t)sprintf(text, "0x");
    for (int64_t i = count < BITS_ELEMENT ? count - 1 : BITS_ELEMENT - 1; i >= 0; i--)
        used += (size_t)sprintf(text + used, "%02x", bytes[i]);
}

/* What was compared, the first difference, and both values. The text stays until the next call. */
__attribute__((format(printf, 2, 3))) static inline const char *bits_text(const bit_report *report,
                                                                          const char *format, ...)
{
    static char text[768];
    char got[2 * BITS_ELEMENT + 3], expected[2 * BITS_ELEMENT + 3], place[80];
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(text, 512, format, arguments);
    va_end(arguments);
    used = used < 512 ? used : 511;
    bits_hex(got, report->got, report->element);
    bits_hex(expected, report->expected, report->element);
    if (report->columns > 0)
        snprintf(place, sizeof place, "row %" PRId64 ", column %" PRId64,
                 report->first / report->columns, report->first % report->columns);
    else
        snprintf(place, sizeof place, report->element == 1 ? "byte %" PRId64 : "element %" PRId64,
                 report->first);
    snprintf(text + used, sizeof text - (size_t)used,
             ": %s is %s, not %s; %" PRId64 " of %" PRId64 " elements differ", place, got, expected,
             report->wrong, report->seen);
    return text;
}

/* Bytes [first, first + bytes) must still be poison (guarded.h). */
static inline bit_report bits_of_poison(const void *data, int64_t first, int64_t bytes)
{
    static const unsigned char poison = GUARD_POISON;
    bit_report report = {.element = 1};
    for (int64_t i = first; i < first + bytes; i++)
        bits_note(&report, i, (const char *)data + i, &poison);
    return report;
}

/* No byte outside of the `bytes` bytes between the guard bands was written. */
static inline bit_report bits_of_guards(const void *data, int64_t bytes)
{
    bit_report before = bits_of_poison(data, -GUARD_BYTES, GUARD_BYTES);
    bit_report behind = bits_of_poison(data, bytes, GUARD_BYTES);
    return before.wrong > 0 ? before : behind;
}

#define EXPECT_BITS(report, ...)                                                     \
    do {                                                                             \
        const bit_report bits_found = (report);                                      \
        cr_assert(bits_found.wrong == 0, "%s", bits_text(&bits_found, __VA_ARGS__)); \
    } while (0)

#define MPI_EXPECT_BITS(report, ...)                                                  \
    do {                                                                              \
        const bit_report bits_found = (report);                                       \
        MPI_EXPECT(bits_found.wrong == 0, "%s", bits_text(&bits_found, __VA_ARGS__)); \
    } while (0)

#endif
