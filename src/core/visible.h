/*
 * Texts of others, from files above all, on a terminal or in a line of a log. What is no printable
 * character of UTF-8 is written as an escape: \n, \t, \r, or \x1b. So no file moves the cursor,
 * begins a line of its own, or turns the order of a line around. A backslash stays as it is, as in
 * paths: this is for reading, not for reading back.
 */
#ifndef MIMO_CORE_VISIBLE_H
#define MIMO_CORE_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/letters.h"

enum { MIMO_VISIBLE_MOST = 4 }; /* bytes that one byte becomes */

/* Control characters above ASCII (U+0080 to U+009F), ends of lines and turns of direction (U+2028
 * to U+202E, U+2066 to U+2069). */
static inline bool mimo_is_control(const unsigned char *letter)
{
    if (letter[0] < 0x80)
        return letter[0] < 0x20 || letter[0] == 0x7f;
    if (letter[0] == 0xc2)
        return letter[1] < 0xa0;
    if (letter[0] != 0xe2)
        return false;
    return (letter[1] == 0x80 && letter[2] >= 0xa8 && letter[2] <= 0xae) ||
           (letter[1] == 0x81 && letter[2] >= 0xa6 && letter[2] <= 0xa9);
}

static inline void mimo_write_escape(char piece[MIMO_VISIBLE_MOST + 1], unsigned char byte)
{
    static const char plain[] = "\n\t\r", letters[] = "ntr";
    const char *found = byte ? strchr(plain, byte) : NULL;
    if (found)
        snprintf(piece, MIMO_VISIBLE_MOST + 1, "\\%c", letters[found - plain]);
    else
        snprintf(piece, MIMO_VISIBLE_MOST + 1, "\\x%02x", byte);
}

/* The next piece of a text, terminated: a letter, or the escape of a byte. *text moves on. False at
 * the end. */
static inline bool mimo_visible_next(char piece[MIMO_VISIBLE_MOST + 1], const char **text)
{
    const unsigned char *at = (const unsigned char *)*text;
    size_t bytes = mimo_letter_bytes(*text);
    if (*at == '\0')
        return false;
    if (bytes > 0 && !mimo_is_control(at)) {
        memcpy(piece, at, bytes);
        piece[bytes] = '\0';
    } else {
        bytes = 1;
        mimo_write_escape(piece, *at);
    }
    *text += bytes;
    return true;
}

/* Write a text into to[capacity], terminated, as far as there is room. Returns `to`. */
static inline const char *mimo_visible(char *to, size_t capacity, const char *text)
{
    char piece[MIMO_VISIBLE_MOST + 1];
    size_t used = 0;
    while (mimo_visible_next(piece, &text) && used + strlen(piece) < capacity) {
        strcpy(to + used, piece);
        used += strlen(piece);
    }
    to[used] = '\0';
    return to;
}

#endif
