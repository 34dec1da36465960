/* Texts that are cut to their memory end with a whole letter of UTF-8. */
#ifndef MIMO_CORE_LETTERS_H
#define MIMO_CORE_LETTERS_H

#include <stddef.h>
#include <stdio.h>

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
