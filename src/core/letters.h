/* Letters of UTF-8, with one of which texts end that are cut to their memory. */
#ifndef MIMO_CORE_LETTERS_H
#define MIMO_CORE_LETTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The bytes of the well-formed letter that a terminated text begins with; 0: there is none. */
static inline size_t mimo_letter_bytes(const char *text)
{
    const unsigned char *byte = (const unsigned char *)text;
    const unsigned char first = byte[0];
    if (first < 0x80)
        return first ? 1 : 0;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    size_t bytes = first >= 0xf0 ? 4 : (first >= 0xe0 ? 3 : 2);
    for (size_t i = 1; i < bytes; i++)
        if ((byte[i] & 0xc0) != 0x80)
            return 0;
    bool longer = (first == 0xe0 && byte[1] < 0xa0) || (first == 0xf0 && byte[1] < 0x90);
    bool no_letter = (first == 0xed && byte[1] > 0x9f) || (first == 0xf4 && byte[1] > 0x8f);
    return longer || no_letter ? 0 : bytes;
}

/* The bytes of text[length], without a last letter that lacks some of its own. */
static inline size_t mimo_whole_letters(const char *text, size_t length)
{
    size_t lead = length;
    while (lead > 0 && length - lead < 3 && (text[lead - 1] & 0xc0) == 0x80)
        lead--;
    if (lead == 0)
        return length;
    unsigned char first = (unsigned char)text[lead - 1];
    size_t bytes = first >= 0xf0 ? 4 : (first >= 0xe0 ? 3 : (first >= 0xc0 ? 2 : 1));
    return length - (lead - 1) < bytes ? lead - 1 : length;
}

/* End what snprintf has written to text[capacity] with a whole letter; it had `wanted` bytes. */
static inline void mimo_end_with_letter(char *text, size_t capacity, int wanted)
{
    if (wanted >= 0 && (size_t)wanted >= capacity)
        text[mimo_whole_letters(text, capacity - 1)] = '\0';
}

/* Copy a text, as far as there is space. They are not the same memory. */
static inline void mimo_copy_text(char *to, size_t capacity, const char *from)
{
    mimo_end_with_letter(to, capacity, snprintf(to, capacity, "%s", from));
}

#endif
