/* UTF-8, one code point at a time. Header only: the pictures module uses it too and links nothing
 * of the program. */
#ifndef TRAIN_UTF8_H
#define TRAIN_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed code point at text[0 .. length), 0 where there is none: a stray or
 * missing continuation byte, an overlong form, a surrogate, a value past U+10FFFF. *code is set
 * where the answer is not 0. */
static inline size_t utf8_next(const char *text, size_t length, uint32_t *code)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *byte = (const unsigned char *)text;
    if (length == 0)
        return 0;
    if (byte[0] < 0x80) {
        *code = byte[0];
        return 1;
    }
    size_t bytes = byte[0] >= 0xf0 && byte[0] < 0xf8   ? 4
                   : byte[0] >= 0xe0 && byte[0] < 0xf0 ? 3
                   : byte[0] >= 0xc0 && byte[0] < 0xe0 ? 2
                                                       : 0;
    if (bytes == 0 || bytes > length)
        return 0;
    uint32_t value = byte[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((byte[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (byte[i] & 0x3fu);
    }
    if (value < smallest[bytes] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 0;
    *code = value;
    return bytes;
}

/* Control characters, ends of lines, turns of direction: what core/visible.h shows as escapes. */
static inline int utf8_is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

/* How many leading bytes of text[0 .. length) are well-formed and printable (no control
 * characters); `length` where all are. */
static inline size_t utf8_printable(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        uint32_t code = 0;
        size_t bytes = utf8_next(text + at, length - at, &code);
        if (bytes == 0 || utf8_is_control(code))
            break;
        at += bytes;
    }
    return at;
}

#endif
