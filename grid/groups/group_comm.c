/* What a grid has once it is connected: its communicator and its process groups. */
#include <stdio.h>
#include <string.h>

#include "comm/agreement.h"
#include "comm/calls.h"
#include "core/checked.h"
#include "core/hash.h"
#include "core/memory.h"
#include "device/profile.h"
#include "grid/dim_set.h"

struct mimo_group_entry {
    mimo_group_entry *next; /* created before this one */
    const mimo_grid *owner; /* the base or one of its views */
    char *key;              /* the set in the owner's grid order */
    mimo_comm *comm;        /* NULL on a rank outside the grid */
};

mimo_comm *mimo_grid_comm(const mimo_grid *grid)
{
    return mimo_grid_base(grid)->comm;
}

/* ----------------------------------------- connect ------------------------------------------ */

static mimo_status connect_check(const mimo_grid *grid, const mimo_comm *comm)
{
    char text[MIMO_GRID_TEXT];
    MIMO_CHECK(grid, MIMO_ERR_ARGUMENT, "mimo_grid_connect: grid is NULL");
    MIMO_CHECK(!grid->base, MIMO_ERR_STATE,
               "view '%s' (%s) cannot be connected: connect its base, which connects its views",
               grid->view_name, mimo_grid_text(text, sizeof text, grid));
    MIMO_CHECK(!grid->comm, MIMO_ERR_STATE, "grid %s is connected already, to %d ranks",
               mimo_grid_text(text, sizeof text, grid), mimo_comm_size(grid->comm));
    return mimo_grid_check_world(grid, mimo_comm_size(comm));
}

mimo_status mimo_grid_connect(mimo_grid *grid, mimo_comm *comm)
{
    MIMO_RANGE();
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_grid_connect: comm is NULL");
    MIMO_ENTER(comm, "mimo_grid_connect");
    char text[MIMO_GRID_TEXT], call[MIMO_CALL_TEXT] = "";
    uint64_t signature = mimo_signature_start(MIMO_CALL_GRID_CONNECT);
    mimo_status status = connect_check(grid, comm);
    if (status == MIMO_OK) {
        /* Views are not compared here: the creation of a view's first group does it. */
        signature = mimo_grid_hash(signature, grid);
        snprintf(call, sizeof call, "connect grid %s at offset %" PRId64,
                 mimo_grid_text(text, sizeof text, grid), grid->offset);
    }
    MIMO_TRY(mimo_agree_as(comm, MIMO_AGREE_CREATE, status, signature, call));
    grid->comm = comm;
    return MIMO_OK;
}

/* ------------------------------------------ groups ------------------------------------------ */

static mimo_group_entry *find_entry(const mimo_grid *owner, const char *key)
{
    mimo_group_entry *entry = mimo_grid_base(owner)->groups;
    while (entry && (entry->owner != owner || strcmp(entry->key, key) != 0))
        entry = entry->next;
    return entry;
}

static void release_entry(mimo_group_entry *entry)
{
    if (!entry)
        return;
    mimo_comm_destroy(entry->comm);
    mimo_release(entry->key);
    mimo_release(entry);
}

/* The newest first: the same order on all ranks. */
void mimo_grid_release_groups(mimo_grid *grid)
{
    while (grid->groups) {
        mimo_group_entry *entry = grid->groups;
        grid->groups = entry->next;
        release_entry(entry);
    }
}

/* Make an entry without its communicator. *out can be set on failure as well; the caller releases
 * it. */
static mimo_status prepare_entry(mimo_group_entry **out, const mimo_grid *grid, const char *dims)
{
    char text[MIMO_GRID_TEXT];
    mimo_dim_set set;
    MIMO_TRY(mimo_dim_set_read(&set, grid, dims));
    MIMO_TRY(mimo_reserve(out, 1, sizeof **out));
    mimo_group_entry *entry = *out;
    entry->owner = mimo_grid_owner(grid, dims);
    MIMO_TRY(mimo_dim_set_key(&entry->key, entry->owner, dims));
    MIMO_CHECK(!find_entry(entry->owner, entry->key), MIMO_ERR_EXISTS,
               "the groups along '%s' of grid %s were created before", entry->key,
               mimo_grid_text(text, sizeof text, entry->owner));
    return MIMO_OK;
}

/* Agree with the other ranks on what is created. `local` is this rank's status of prepare_entry. */
static mimo_status agree_entry(mimo_comm *comm, mimo_status local, const mimo_group_entry *entry)
{
    char text[MIMO_GRID_TEXT], call[MIMO_CALL_TEXT] = "";
    uint64_t signature = mimo_signature_start(MIMO_CALL_GRID_CREATE_GROUP);
    if (local == MIMO_OK) {
        signature = mimo_grid_hash(signature, entry->owner);
        signature = mimo_hash_bytes(signature, entry->key, strlen(entry->key));
        snprintf(call, sizeof call, "create_group '%s' of grid %s", entry->key,
                 mimo_grid_text(text, sizeof text, entry->owner));
    }
    return mimo_agree_as(comm, MIMO_AGREE_CREATE, local, signature, call);
}

/* The colour is the group's index, the key is the rank in the group. Both fit an int, as all ranks
 * do. */
mimo_status mimo_grid_split_set(mimo_comm **out, mimo_comm *comm, const mimo_grid *grid,
                                mimo_dim_set set)
{
    int64_t index = -1, at = 0, rank = mimo_comm_rank(comm);
    if (mimo_grid_contains(grid, rank))
        mimo_grid_place(&index, &at, grid, set, rank);
    return mimo_comm_split(out, comm, (int)index, (int)at);
}

mimo_status mimo_grid_split(mimo_comm **out, mimo_comm *comm, const mimo_grid *grid,
                            const char *dims)
{
    mimo_dim_set set;
    MIMO_TRY(mimo_dim_set_read(&set, grid, dims));
    return mimo_grid_split_set(out, comm, grid, set);
}

static mimo_status connected(mimo_comm **out, const mimo_grid *grid, const char *what)
{
    char text[MIMO_GRID_TEXT];
    MIMO_CHECK(grid, MIMO_ERR_ARGUMENT, "%s: grid is NULL", what);
    mimo_comm *comm = mimo_grid_comm(grid);
    MIMO_CHECK(comm, MIMO_ERR_STATE, "%s: grid %s is not connected to a communicator", what,
               mimo_grid_text(text, sizeof text, grid));
    *out = comm;
    return MIMO_OK;
}

mimo_status mimo_grid_create_group(mimo_grid *grid, const char *dims)
{
    MIMO_RANGE();
    mimo_comm *comm;
    mimo_group_entry *entry = NULL;
    MIMO_TRY(connected(&comm, grid, "mimo_grid_create_group"));
    MIMO_ENTER(comm, "mimo_grid_create_group");
    mimo_status status = prepare_entry(&entry, grid, dims);
    MIMO_TRY_GOTO(status, fail, agree_entry(comm, status, entry));
    MIMO_TRY_GOTO(status, fail, mimo_grid_split(&entry->comm, comm, entry->owner, entry->key));
    mimo_grid *base = grid->base ? grid->base : grid;
    entry->next = base->groups;
    base->groups = entry;
    return MIMO_OK;
fail:
    release_entry(entry);
    return status;
}

mimo_status mimo_grid_group(mimo_comm **out, const mimo_grid *grid, const char *dims)
{
    char text[MIMO_GRID_TEXT], *key;
    mimo_comm *comm = NULL;
    mimo_dim_set set;
    MIMO_TRY(connected(&comm, grid, "mimo_grid_group"));
    MIMO_CHECK(out, MIMO_ERR_ARGUMENT, "mimo_grid_group: out is NULL");
    MIMO_TRY(mimo_dim_set_read(&set, grid, dims));
    const mimo_grid *owner = mimo_grid_owner(grid, dims);
    MIMO_TRY(mimo_dim_set_key(&key, owner, dims));
    const mimo_group_entry *entry = find_entry(owner, key);
    mimo_release(key);
    MIMO_CHECK(entry, MIMO_ERR_NOT_FOUND, "no groups along '%s' of grid %s were created", dims,
               mimo_grid_text(text, sizeof text, grid));
    MIMO_TRY(mimo_grid_check_rank(owner, mimo_comm_rank(comm)));
    *out = entry->comm;
    return MIMO_OK;
}
