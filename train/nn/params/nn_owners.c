#include "train/nn/params/nn_owners.h"

#include <inttypes.h>
#include <string.h>

#include "core/check.h"
#include "core/checked.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "gradient/bucket_rules.h"
#include "train/nn/exchange/nn_exchange.h"
#include "train/nn/params/nn_params_types.h"

enum { NO_PART = -1 };

/* The part of a tensor that this rank has. */
static int64_t own_part(const nn_param *param)
{
    return param->placement.cut < 0 ? 0 : param->rank;
}

/* -------------------------------------------- claims ------------------------------------------ */

/* Whether this rank is the first of those that hold the same elements, of each rule. */
static mimo_status find_speakers(bool speaks[NN_RULES], const nn_owners_desc *desc)
{
    int64_t rank = nn_comm_rank(desc->comm);
    for (int r = 0; r < NN_RULES; r++) {
        nn_rule rule = (nn_rule)r;
        const mimo_gradient_bucket bucket = nn_rule_bucket(desc->params, rule);
        mimo_gradient_grid home = {desc->experts, bucket.grid, "edp", "ep"};
        mimo_bucket_rule read;
        if (!nn_rule_is_expert(rule))
            home = mimo_module_grid(desc->grid, desc->params->module);
        speaks[r] = !home.grid;
        if (!home.grid)
            continue;
        MIMO_TRY(mimo_bucket_rule_of(&read, &home, &bucket));
        speaks[r] = mimo_rule_is_representative(&read, home.grid, rank);
        if (nn_rule_is_expert(rule) && MIMO_MUTATED("save-expert-copies"))
            speaks[r] = true;
    }
    return MIMO_OK;
}

static mimo_status check_grids(const nn_owners_desc *desc)
{
    MIMO_CHECK(desc->grid || nn_comm_size(desc->comm) == 1, MIMO_ERR_ARGUMENT,
               "owners of \"%s\": %d ranks without a grid", desc->params->name,
               nn_comm_size(desc->comm));
    for (int i = 0; i < nn_params_count(desc->params); i++)
        MIMO_CHECK(
            desc->experts || !desc->grid || !nn_rule_is_expert(nn_params_at(desc->params, i)->rule),
            MIMO_ERR_ARGUMENT, "owners of \"%s\": \"%s\" is an expert's, and there is no view",
            desc->params->name, nn_params_at(desc->params, i)->name);
    return MIMO_OK;
}

/* claims[tensors]: the part of each tensor that this rank speaks for. */
static mimo_status make_claims(int *claims, const nn_owners_desc *desc)
{
    bool speaks[NN_RULES];
    MIMO_TRY(check_grids(desc));
    MIMO_TRY(find_speakers(speaks, desc));
    for (int i = 0; i < nn_params_count(desc->params); i++) {
        const nn_param *param = nn_params_at(desc->params, i);
        claims[i] = param->held && speaks[param->rule] ? (int)own_part(param) : NO_PART;
    }
    return MIMO_OK;
}

/* ------------------------------------------- owners ------------------------------------------- */

static mimo_status check_parts(const nn_owners *owners, int index)
{
    const nn_param *param = nn_params_at(owners->params, index);
    const char *along = nn_rule_is_expert(param->rule) ? "etp" : "tp";
    for (int64_t part = 0; part < nn_placement_parts(&param->placement); part++) {
        bool found = nn_owners_rank(owners, index, part) >= 0;
        MIMO_CHECK(found || param->placement.cut < 0, MIMO_ERR_MISMATCH,
                   "export: no shard %s=%" PRId64 " of %s", along, part, param->name);
        MIMO_CHECK(found, MIMO_ERR_MISMATCH, "export: no rank has %s", param->name);
    }
    return MIMO_OK;
}

/* From the claims of all ranks, which every rank reads alike. */
static mimo_status take_claims(nn_owners *owners, const int *claims)
{
    int count = nn_params_count(owners->params), ranks = nn_comm_size(owners->comm);
    for (int64_t i = 0; i < count * owners->most; i++)
        owners->ranks[i] = -1;
    for (int rank = 0; rank < ranks; rank++)
        for (int i = 0; i < count; i++) {
            int part = claims[(int64_t)rank * count + i];
            int *owner = &owners->ranks[i * owners->most + part];
            if (part == NO_PART)
                continue;
            MIMO_CHECK(*owner < 0, MIMO_ERR_MISMATCH, "export: %s twice (ranks %d and %d)",
                       nn_params_at(owners->params, i)->name, *owner, rank);
            *owner = rank;
        }
    for (int i = 0; i < count; i++)
        MIMO_TRY(check_parts(owners, i));
    return MIMO_OK;
}

/* What the ranks tell each other. */
typedef struct claim_rooms {
    int *own; /* [tensors] */
    int *all; /* [ranks, tensors] */
} claim_rooms;

static mimo_status begin(nn_owners *made, claim_rooms *rooms, const nn_owners_desc *desc)
{
    int64_t count = nn_params_count(desc->params), all;
    for (int i = 0; i < count; i++) {
        int64_t parts = nn_placement_parts(&nn_params_at(desc->params, i)->placement);
        made->most = parts > made->most ? parts : made->most;
    }
    MIMO_TRY(mimo_mul(&all, count, made->most));
    MIMO_TRY(mimo_reserve(&made->ranks, all, sizeof *made->ranks));
    MIMO_TRY(mimo_mul(&all, count, nn_comm_size(desc->comm)));
    MIMO_TRY(mimo_reserve(&rooms->own, count, sizeof *rooms->own));
    MIMO_TRY(mimo_reserve(&rooms->all, all, sizeof *rooms->all));
    return make_claims(rooms->own, desc);
}

mimo_status nn_owners_init(nn_owners *out, const nn_owners_desc *desc)
{
    nn_owners made = {.params = desc->params, .comm = desc->comm, .most = 1};
    nn_exchange all = {.comm = desc->comm};
    claim_rooms rooms = {0};
    int bytes = nn_params_count(desc->params) * (int)sizeof *rooms.own;
    mimo_status status = nn_exchange_agree(&all, begin(&made, &rooms, desc));
    if (status == MIMO_OK)
        status = nn_exchange_host_gather(&all, rooms.all, rooms.own, bytes);
    if (status == MIMO_OK)
        status = take_claims(&made, rooms.all);
    mimo_release(rooms.own);
    mimo_release(rooms.all);
    if (status != MIMO_OK)
        nn_owners_release(&made);
    else
        *out = made;
    return status;
}

void nn_owners_release(nn_owners *owners)
{
    mimo_release(owners->ranks);
    memset(owners, 0, sizeof *owners);
}

int nn_owners_rank(const nn_owners *owners, int index, int64_t part)
{
    return owners->ranks[index * owners->most + part];
}

bool nn_owners_speak(const nn_owners *owners, int index)
{
    const nn_param *param = nn_params_at(owners->params, index);
    return param->held &&
           nn_owners_rank(owners, index, own_part(param)) == nn_comm_rank(owners->comm);
}
