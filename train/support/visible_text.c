#include "train/support/visible_text.h"

#include "core/visible.h"

const char *visible_text(char *to, size_t capacity, const char *text)
{
    return mimo_visible(to, capacity, text);
}

void visible_print(FILE *stream, const char *text)
{
    char piece[MIMO_VISIBLE_MOST + 1];
    while (mimo_visible_next(piece, &text))
        fputs(piece, stream);
}
