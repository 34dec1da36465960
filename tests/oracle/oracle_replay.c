#include "oracle_replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "core/memory.h"

static int64_t tokens_of(const oracle_replay *replay)
{
    return replay->samples * replay->seq;
}

static int64_t count_of(const oracle_replay *replay)
{
    return replay->steps * replay->blocks * tokens_of(replay) * replay->top_k;
}

mimo_status oracle_replay_reserve(oracle_replay *replay)
{
    MIMO_TRY(mimo_reserve(&replay->ids, count_of(replay), sizeof *replay->ids));
    for (int64_t i = 0; i < count_of(replay); i++)
        replay->ids[i] = ORACLE_NO_CHOICE;
    return MIMO_OK;
}

void oracle_replay_release(oracle_replay *replay)
{
    mimo_release(replay->ids);
    memset(replay, 0, sizeof *replay);
}

/* The choices of a block. */
static int32_t *choices_of(const oracle_replay *replay, int64_t step, int64_t block)
{
    return replay->ids + (step * replay->blocks + block) * tokens_of(replay) * replay->top_k;
}

void oracle_replay_set(oracle_replay *replay, int64_t step, int64_t block, const double *ids)
{
    int32_t *to = choices_of(replay, step, block);
    for (int64_t i = 0; i < tokens_of(replay) * replay->top_k; i++)
        to[i] = (int32_t)ids[i];
}

mimo_status oracle_replay_share(oracle_replay *replay, mimo_comm *host)
{
    int64_t bytes = count_of(replay) * (int64_t)sizeof *replay->ids;
    return bytes > 0 ? mimo_comm_broadcast(host, replay->ids, bytes, 0, NULL) : MIMO_OK;
}

const int32_t *oracle_replay_find(const oracle_replay *replay, int64_t block, int64_t token)
{
    if (block < 0 || block >= replay->blocks || token < 0 || token >= tokens_of(replay))
        return NULL;
    const int32_t *ids = choices_of(replay, replay->step, block) + token * replay->top_k;
    return ids[0] == ORACLE_NO_CHOICE ? NULL : ids;
}

int64_t oracle_replay_token(const oracle_replay *replay, int64_t row, int64_t batch)
{
    int64_t sample = replay->first + row % batch;
    if (sample >= replay->samples || row / batch >= replay->positions)
        return -1;
    return sample * replay->seq + replay->position[row / batch];
}

/* The block that a router is of; -1: of none. */
static int64_t block_of(const char *layer)
{
    int block, length = 0;
    bool read = sscanf(layer, "llm.block%d.mlp.router%n", &block, &length) == 1;
    return read && length > 0 && !layer[length] ? block : -1;
}

mimo_status oracle_replay_ids(void *context, int32_t *ids, const char *layer,
                              const nn_row_range *rows)
{
    const oracle_replay *replay = context;
    for (int64_t i = 0; i < rows->count; i++, ids += replay->top_k) {
        int64_t token = oracle_replay_token(replay, rows->first + i, rows->batch);
        const int32_t *choice = oracle_replay_find(replay, block_of(layer), token);
        MIMO_CHECK(choice || token < 0, MIMO_ERR_NOT_FOUND,
                   "replay: %s has no choice for token %" PRId64, layer, token);
        for (int64_t j = 0; j < replay->top_k; j++)
            ids[j] = choice ? choice[j] : -1;
    }
    return MIMO_OK;
}
