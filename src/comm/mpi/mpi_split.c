#include "comm/mpi/mpi_split.h"

#include <stdlib.h>

#include "comm/agreement.h"
#include "comm/mpi/mpi_types.h"
#include "core/memory.h"

/* Of the parent, where a group of one rank is made. No message has it. */
enum { LONE_TAG = 79 };

typedef struct place {
    int color, key;
} place;

static int by_color(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return (x->color > y->color) - (x->color < y->color);
}

/* This rank's place in its group. */
static void find_place(mimo_mpi_group *group, const place *all, const mimo_comm *parent)
{
    for (int i = 0; i < parent->size && group->color >= 0; i++) {
        if (all[i].color != group->color)
            continue;
        group->size++;
        group->rank += all[i].key < group->key || (all[i].key == group->key && i < parent->rank);
    }
}

static bool is_whole(const place *all, int size)
{
    for (int i = 0; i < size; i++)
        if (all[i].color != all[0].color || (i > 0 && all[i].key < all[i - 1].key))
            return false;
    return all[0].color >= 0;
}

/* Sorts the places. */
static bool are_lone(place *all, int size)
{
    qsort(all, (size_t)size, sizeof *all, by_color);
    for (int i = 1; i < size; i++)
        if (all[i].color >= 0 && all[i].color == all[i - 1].color)
            return false;
    return true;
}

static mimo_status gather(place *all, mimo_comm *parent, place mine)
{
    mimo_request *request = NULL;
    MIMO_TRY(parent->backend->host_allgather_start(&request, parent, all, &mine, (int)sizeof mine));
    return mimo_wait(parent, &request, "comm split");
}

mimo_status mimo_mpi_group_find(mimo_mpi_group *out, mimo_comm *parent, int color, int key)
{
    place *all = NULL;
    mimo_mpi_group group = {.color = color, .key = key, .kind = MIMO_MPI_PARTS};
    mimo_status status = mimo_reserve(&all, parent->size, sizeof *all);
    MIMO_TRY_GOTO(status, done,
                  mimo_agree_as(parent, MIMO_AGREE_ALWAYS, status,
                                mimo_signature_start(MIMO_CALL_COMM_SPLIT), "comm split"));
    MIMO_TRY_GOTO(status, done, gather(all, parent, (place){color, key}));
    find_place(&group, all, parent);
    if (parent->size > 1 && is_whole(all, parent->size))
        group.kind = MIMO_MPI_WHOLE;
    else if (are_lone(all, parent->size))
        group.kind = MIMO_MPI_LONE;
    *out = group;
done:
    mimo_release(all);
    return status;
}

/* MPI needs no other rank for it. */
static mimo_status split_lone(MPI_Comm *out, MPI_Comm parent)
{
    MPI_Group all, own;
    int rank;
    MIMO_TRY_MPI(MPI_Comm_rank(parent, &rank));
    MIMO_TRY_MPI(MPI_Comm_group(parent, &all));
    int code = MPI_Group_incl(all, 1, &rank, &own);
    MPI_Group_free(&all);
    MIMO_TRY(mimo_mpi_status(code, "MPI_Group_incl"));
    code = MPI_Comm_create_group(parent, own, LONE_TAG, out);
    MPI_Group_free(&own);
    return mimo_mpi_status(code, "MPI_Comm_create_group");
}

mimo_status mimo_mpi_group_split(MPI_Comm *out, MPI_Comm parent, const mimo_mpi_group *group)
{
    *out = MPI_COMM_NULL;
    if (group->kind == MIMO_MPI_PARTS)
        MIMO_TRY_MPI(MPI_Comm_split(parent, group->size > 1 ? group->color : MPI_UNDEFINED,
                                    group->key, out));
    return group->size == 1 ? split_lone(out, parent) : MIMO_OK;
}
