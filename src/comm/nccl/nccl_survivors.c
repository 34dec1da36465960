/*
 * Going on without ranks. When a family ends its NCCL communicators are aborted, so nothing is left
 * that ncclCommShrink could shrink, and nothing that carries messages. The caller's bootstrap has
 * the ranks that are left. These tell each other who they were, and make a communicator as any
 * other.
 */
#include "comm/nccl/nccl_survivors.h"

#include <inttypes.h>

#include "core/descriptor.h"
#include "core/memory.h"

static const char CALL[] = "mimo_comm_survivors"; /* in sentences */

typedef struct survivor {
    int32_t rank, size, least; /* of the communicator that ended */
    int32_t reserved;
    int64_t generation; /* of its family */
} survivor;

static mimo_status read_bootstrap(mimo_bootstrap *own, const mimo_bootstrap *given)
{
    MIMO_CHECK(given, MIMO_ERR_ARGUMENT,
               "%s: bootstrap is NULL: on NCCL it has the ranks that are left", CALL);
    MIMO_TRY(mimo_read_descriptor(own, sizeof *own, given, "bootstrap"));
    MIMO_CHECK(own->allgather, MIMO_ERR_ARGUMENT, "%s: the bootstrap's allgather is NULL", CALL);
    MIMO_CHECK(own->ranks > 0 && own->rank >= 0 && own->rank < own->ranks, MIMO_ERR_ARGUMENT,
               "%s: rank %d of %d", CALL, own->rank, own->ranks);
    return MIMO_OK;
}

/* All ranks read the same array, so all return the same. */
static mimo_status check_order(const survivor *all, int count)
{
    for (int i = 0; i < count; i++)
        MIMO_CHECK(all[i].size == all[0].size, MIMO_ERR_MISMATCH,
                   "%s: rank %d of the bootstrap comes from %d ranks, rank 0 from %d", CALL, i,
                   (int)all[i].size, (int)all[0].size);
    for (int i = 1; i < count; i++)
        MIMO_CHECK(
            all[i - 1].rank < all[i].rank, MIMO_ERR_MISMATCH,
            "%s: ranks %d and %d of the bootstrap were ranks %d and %d: it keeps their order", CALL,
            i - 1, i, (int)all[i - 1].rank, (int)all[i].rank);
    return MIMO_OK;
}

static mimo_status too_few(const survivor *all, int count, int least)
{
    enum { NAMES_TEXT = 192 };
    char names[NAMES_TEXT];
    uint64_t *missing;
    int size = all[0].size, at = 0;
    MIMO_TRY(mimo_reserve(&missing, mimo_survivors_words(size), sizeof *missing));
    for (int rank = 0; rank < size; rank++) {
        if (at < count && all[at].rank == rank)
            at++;
        else
            mimo_ranks_add(missing, rank);
    }
    mimo_survivors_write_ranks(names, sizeof names, missing, size);
    mimo_release(missing);
    return mimo_fail(MIMO_ERR_STATE,
                     "%s: %d of %d ranks are left, and at least %d have to be; without %s", CALL,
                     count, size, least, names);
}

/* Who is left, and enough of them. */
static mimo_status decide(mimo_survivors_terms *terms, const survivor *all, int count)
{
    int least = 0;
    MIMO_TRY(check_order(all, count));
    terms->count = count;
    for (int i = 0; i < count; i++) {
        terms->ranks[i] = all[i].rank;
        least = all[i].least > least ? all[i].least : least;
        if (all[i].generation >= terms->generation)
            terms->generation = all[i].generation + 1;
    }
    return count < least ? too_few(all, count, least) : MIMO_OK;
}

mimo_status mimo_nccl_survivors_meet(mimo_survivors_terms *terms, nccl_comm *comm,
                                     mimo_bootstrap *bootstrap)
{
    survivor *all;
    const mimo_comm *ended = &comm->base;
    MIMO_TRY(read_bootstrap(bootstrap, terms->bootstrap));
    const survivor mine = {.rank = ended->rank,
                           .size = ended->size,
                           .least = terms->least,
                           .generation = ended->family->generation + comm->recoveries++};
    MIMO_CHECK(bootstrap->ranks <= ended->size, MIMO_ERR_MISMATCH,
               "%s: the bootstrap has %d ranks, and the communicator had %d", CALL,
               bootstrap->ranks, ended->size);
    MIMO_TRY(mimo_reserve(&all, bootstrap->ranks, sizeof *all));
    int failed = bootstrap->allgather(bootstrap->context, all, &mine, sizeof mine);
    mimo_status status =
        failed ? mimo_fail(MIMO_ERR_COMM, "%s: the bootstrap's allgather gave %d", CALL, failed)
               : decide(terms, all, bootstrap->ranks);
    mimo_release(all);
    return status;
}

static int setting(int configured)
{
    return configured == NCCL_CONFIG_UNDEF_INT ? MIMO_NCCL_DEFAULT : configured;
}

mimo_nccl_desc mimo_nccl_survivors_desc(const nccl_family *family, const mimo_comm_desc *common)
{
    mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    desc.device = family->device;
    desc.common = common;
    desc.min_ctas = setting(family->config.minCTAs);
    desc.max_ctas = setting(family->config.maxCTAs);
    desc.blocking = setting(family->config.blocking);
    desc.split_share = setting(family->config.splitShare);
    desc.reserve = family->allocator.reserve;
    desc.release = family->allocator.release;
    desc.context = family->allocator.context;
    desc.staging_bytes = family->staging_bytes;
    return desc;
}
