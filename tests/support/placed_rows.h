/* Rows at known addresses, for tests of a backend's exchanges: placed behind a base of NULL. */
#ifndef MIMO_TESTS_PLACED_ROWS_H
#define MIMO_TESTS_PLACED_ROWS_H

#include "core/rows.h"

static char *const no_base[1] = {NULL};
static const int64_t no_base_alignment[1] = {MIMO_MOST_ALIGNMENT};

static inline mimo_placed_rows placed_rows(const mimo_rows *rows)
{
    return (mimo_placed_rows){*rows, {0, (intptr_t)rows->base}};
}

static inline mimo_placed_copy placed_copy(const mimo_row_copy *copy)
{
    return (mimo_placed_copy){placed_rows(&copy->to), placed_rows(&copy->from)};
}

#endif
