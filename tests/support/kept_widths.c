#include "kept_widths.h"

#include <stdlib.h>
#include <string.h>

#include "comm/row_loops.h"
#include "mpi_test.h"

/* Rows of an exchange; a message has one end of them. */
typedef struct kept_rows {
    mimo_placed_copy copy;
    uint32_t width;
} kept_rows;

typedef struct kept_exchange {
    struct kept_exchange *next;
    mimo_exchange *exchange;
    int base_count;
    char **bases; /* of the last time; NULL: there was none */
    int64_t count;
    kept_rows *rows;
} kept_exchange;

static struct {
    const mimo_comm_backend *real;
    mimo_comm_backend table;
    kept_exchange *first;
    int64_t looks;
} watch;

/* ------------------------------------------ widths ------------------------------------------ */

static uint64_t bits_of_place(const mimo_placed_rows *placed, const int64_t *alignments)
{
    int64_t begin = placed->at.offset + placed->rows.first * placed->rows.row_bytes;
    return (uint64_t)(begin | alignments[placed->at.base]);
}

/* The widest word that suits both ends, of all that lie behind bases of these alignments. */
static uint32_t width_of(const mimo_placed_copy *copy, const int64_t *alignments)
{
    const mimo_row_loops loops = mimo_row_loops_of(&copy->to.rows, &copy->from.rows);
    return mimo_word_width(&loops, bits_of_place(&copy->to, alignments) |
                                       bits_of_place(&copy->from, alignments));
}

static void keep_rows(kept_exchange *it, const mimo_placed_copy *copy, const int64_t *alignments)
{
    if (mimo_rows_bytes(&copy->to.rows) > 0)
        it->rows[it->count++] = (kept_rows){*copy, width_of(copy, alignments)};
}

static void keep_messages(kept_exchange *it, const mimo_message *list, int count,
                          const int64_t *alignments)
{
    for (int i = 0; i < count; i++)
        for (int64_t j = 0; j < list[i].count; j++)
            keep_rows(it, &(mimo_placed_copy){list[i].rows[j], list[i].rows[j]}, alignments);
}

static int64_t most_rows(const mimo_messages *all)
{
    int64_t most = all->copy_count;
    for (int i = 0; i < all->send_count; i++)
        most += all->sends[i].count;
    for (int i = 0; i < all->receive_count; i++)
        most += all->receives[i].count;
    for (int i = 0; i < all->pushes.count; i++)
        most += all->pushes.list[i].count;
    return most;
}

static void keep(mimo_exchange *exchange, const mimo_messages *all)
{
    kept_exchange *it = calloc(1, sizeof *it);
    *it = (kept_exchange){watch.first, exchange, all->base_count, NULL, 0, NULL};
    it->rows = calloc((size_t)most_rows(all) + 1, sizeof *it->rows);
    watch.first = it;
    keep_messages(it, all->sends, all->send_count, all->alignments);
    keep_messages(it, all->receives, all->receive_count, all->alignments);
    for (int i = 0; i < all->pushes.count; i++)
        for (int64_t j = 0; j < all->pushes.list[i].count; j++)
            keep_rows(it, &all->pushes.list[i].rows[j], all->alignments);
    for (int64_t i = 0; i < all->copy_count; i++)
        keep_rows(it, &all->copies[i], all->alignments);
}

/* ------------------------------------------ looks ------------------------------------------- */

static void look_at(const kept_rows *rows, char *const *bases, const int64_t *alignments)
{
    const mimo_rows to = mimo_rows_at(&rows->copy.to, bases),
                    from = mimo_rows_at(&rows->copy.from, bases);
    uintptr_t ends = (uintptr_t)mimo_rows_begin(&to) | (uintptr_t)mimo_rows_begin(&from);
    uint32_t width = width_of(&rows->copy, alignments);
    MPI_EXPECT(ends % (1u << rows->width) == 0, "rows from %p to %p in words of %u bytes",
               (void *)mimo_rows_begin(&from), (void *)mimo_rows_begin(&to), 1u << rows->width);
    MPI_EXPECT(rows->width == width, "rows from %p to %p in words of %u bytes, not of %u",
               (void *)mimo_rows_begin(&from), (void *)mimo_rows_begin(&to), 1u << rows->width,
               1u << width);
}

static void look(kept_exchange *it, char *const *bases)
{
    size_t bytes = (size_t)it->base_count * sizeof *bases;
    int64_t *alignments = calloc((size_t)it->base_count + 1, sizeof *alignments);
    for (int i = 0; i < it->base_count; i++)
        alignments[i] = mimo_alignment_of(bases[i]);
    for (int64_t i = 0; i < it->count; i++)
        look_at(&it->rows[i], bases, alignments);
    free(alignments);
    watch.looks += it->bases && memcmp(it->bases, bases, bytes) != 0;
    it->bases = it->bases ? it->bases : malloc(bytes + 1);
    memcpy(it->bases, bases, bytes);
}

int64_t widths_looked_at(void)
{
    int64_t looks = watch.looks;
    watch.looks = 0;
    return looks;
}

/* ------------------------------------------ table ------------------------------------------- */

static kept_exchange **link_of(const mimo_exchange *exchange)
{
    kept_exchange **link = &watch.first;
    while (*link && (*link)->exchange != exchange)
        link = &(*link)->next;
    return link;
}

static mimo_status watched_create(mimo_exchange **out, mimo_comm *comm,
                                  const mimo_messages *messages)
{
    mimo_status status = watch.real->exchange_create(out, comm, messages);
    if (status == MIMO_OK)
        keep(*out, messages);
    return status;
}

static mimo_status watched_bind(mimo_exchange *exchange, char *const *bases, uint64_t signature)
{
    kept_exchange *it = *link_of(exchange);
    if (it)
        look(it, bases);
    return watch.real->exchange_bind(exchange, bases, signature);
}

static void watched_destroy(mimo_exchange *exchange)
{
    kept_exchange **link = link_of(exchange), *it = *link;
    watch.real->exchange_destroy(exchange);
    if (!exchange || !it)
        return;
    *link = it->next;
    free(it->rows);
    free(it->bases);
    free(it);
}

void watch_widths(mimo_comm *comm)
{
    watch.real = comm->backend;
    watch.table = *comm->backend;
    watch.table.exchange_create = watched_create;
    watch.table.exchange_bind = watched_bind;
    watch.table.exchange_destroy = watched_destroy;
    comm->backend = &watch.table;
}
