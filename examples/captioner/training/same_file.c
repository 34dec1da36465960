#include "captioner/training/same_file.h"

#include <stdbool.h>
#include <stdio.h>

#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* As it travels. */
typedef struct file_mark {
    struct file_content content;
    int64_t step;
} file_mark;

typedef char mark_text[64];

/* What tells two marks apart, as it is in `mark`. */
static void describe(mark_text out, const file_mark *mark, const file_mark *other)
{
    if (mark->step != other->step)
        snprintf(out, sizeof(mark_text), "step %" PRId64, mark->step);
    else if (mark->content.bytes != other->content.bytes)
        snprintf(out, sizeof(mark_text), "%" PRId64 " bytes", mark->content.bytes);
    else
        snprintf(out, sizeof(mark_text), "bytes with the hash %016" PRIx64, mark->content.hash);
}

static bool is_same(const file_mark *a, const file_mark *b)
{
    return a->content.bytes == b->content.bytes && a->content.hash == b->content.hash;
}

static mimo_status compare(const file_mark *marks, int ranks, const opened_file *mine)
{
    for (int rank = 1; rank < ranks; rank++) {
        mark_text here, first;
        if (is_same(&marks[rank], &marks[0]))
            continue;
        describe(here, &marks[rank], &marks[0]);
        describe(first, &marks[0], &marks[rank]);
        return mimo_fail(MIMO_ERR_MISMATCH,
                         "%s %s is not the same file on all ranks: rank %d has %s, and rank 0 has "
                         "%s. It was replaced while they opened it, or each has its own",
                         mine->kind, mine->path, rank, here, first);
    }
    return MIMO_OK;
}

mimo_status same_file_agree(mimo_comm *world, mimo_status opened, const opened_file *mine)
{
    const file_mark mark = {mine->content, mine->step};
    int ranks = mimo_comm_size(world);
    file_mark *marks = NULL;
    if (opened == MIMO_OK)
        opened = memory_reserve(&marks, ranks, sizeof *marks);
    mimo_status status = mimo_comm_agree_named(world, opened, mine->kind);
    if (status == MIMO_OK)
        status = mimo_comm_host_allgather(world, marks, &mark, (int)sizeof mark);
    if (status == MIMO_OK)
        status = compare(marks, ranks, mine);
    memory_release(marks);
    return status;
}
