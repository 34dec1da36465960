#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <mimo/env.h>

#include "comm/agreement.h"
#include "core/check.h"
#include "core/hash.h"

static void end_with(mimo_agreement *agreement, mimo_status result)
{
    agreement->comm->backend->release(agreement->request);
    agreement->request = NULL;
    agreement->result = result;
    agreement->stage = MIMO_AGREEMENT_DONE;
}

static void start_stage(mimo_agreement *agreement, mimo_status started, int stage)
{
    agreement->stage = stage;
    if (started != MIMO_OK)
        end_with(agreement, started);
}

/* An environment is long: what need not be known is not looked up. */
mimo_status mimo_agree_is_wanted(bool *out, const mimo_comm *comm, mimo_agree_kind kind)
{
    int64_t level = 0, checks;
    *out = true;
    if (kind == MIMO_AGREE_ALWAYS)
        return MIMO_OK;
    if (kind != MIMO_AGREE_DATA || !comm->device->enqueues)
        MIMO_TRY(mimo_env_get(MIMO_ENV_AGREE, &level));
    MIMO_CHECK(level == 0 || level == 1, MIMO_ERR_ARGUMENT,
               "environment MIMO_AGREE=%" PRId64 " is neither 0 nor 1", level);
    if (level > 0)
        return MIMO_OK;
    MIMO_TRY(mimo_env_get(MIMO_ENV_CHECK, &checks));
    *out = (checks & MIMO_CHECK_CALLS) != 0;
    return MIMO_OK;
}

/* A word and its complement: after the MAX they still are that where all words are equal. */
static void vote_word(uint64_t vote[2], uint64_t word)
{
    vote[0] = word;
    vote[1] = ~word;
}

static bool all_equal(const uint64_t vote[2])
{
    return vote[0] == ~vote[1];
}

void mimo_agreement_begin(mimo_agreement *agreement, mimo_comm *comm, const mimo_claim *claim)
{
    bool wanted;
    mimo_status local = claim->local;
    memset(agreement, 0, sizeof *agreement);
    agreement->comm = comm;
    agreement->same_guess = true;
    uint64_t number = comm->calls++;
    mimo_status ended = mimo_comm_enter(comm, claim->call);
    if (ended != MIMO_OK) {
        end_with(agreement, ended);
        return;
    }
    mimo_verdict *mine = &agreement->mine;
    if (local == MIMO_OK) {
        local = mimo_agree_is_wanted(&wanted, comm, claim->kind);
    } else {
        snprintf(mine->sentence, sizeof mine->sentence, "%s", mimo_last_error());
        if (mimo_agree_is_wanted(&wanted, comm, claim->kind) !=
            MIMO_OK) /* the first error is reported */
            mimo_fail(local, "%s", mine->sentence);
    }
    if (!wanted || comm->size == 1) {
        end_with(agreement, local);
        return;
    }
    mine->signature = mimo_hash_int(claim->signature, (int64_t)number);
    mine->status = (int32_t)local;
    snprintf(mine->call, sizeof mine->call, "%s", claim->call);
    if (local != MIMO_OK)
        snprintf(mine->sentence, sizeof mine->sentence, "%s", mimo_last_error());
    agreement->vote[0] = local == MIMO_OK ? 0 : (uint64_t)(comm->size - comm->rank);
    vote_word(&agreement->vote[1], mine->signature);
    vote_word(&agreement->vote[3], claim->guess);
    start_stage(agreement, comm->backend->vote_start(&agreement->request, comm, agreement->vote, 5),
                MIMO_AGREEMENT_VOTE);
}

/* The lowest rank that voted: see how vote[0] is cast. */
static int lowest_voter(const mimo_agreement *agreement)
{
    return agreement->comm->size - (int)agreement->vote[0];
}

static void tell(mimo_agreement *agreement, mimo_verdict *verdict, int root, int stage)
{
    mimo_comm *comm = agreement->comm;
    start_stage(
        agreement,
        comm->backend->tell_start(&agreement->request, comm, verdict, (int)sizeof *verdict, root),
        stage);
}

static void vote_ended(mimo_agreement *agreement)
{
    if (agreement->vote[0] > 0) {
        tell(agreement, &agreement->mine, lowest_voter(agreement), MIMO_AGREEMENT_TELL);
    } else if (all_equal(&agreement->vote[1])) {
        agreement->same_guess = all_equal(&agreement->vote[3]);
        end_with(agreement, MIMO_OK);
    } else {
        agreement->first = agreement->mine;
        tell(agreement, &agreement->first, 0, MIMO_AGREEMENT_FIRST);
    }
}

static void tell_ended(mimo_agreement *agreement)
{
    mimo_status status = (mimo_status)agreement->mine.status;
    end_with(agreement,
             mimo_fail(status, "rank %d: %s", lowest_voter(agreement), agreement->mine.sentence));
}

static void first_ended(mimo_agreement *agreement)
{
    mimo_comm *comm = agreement->comm;
    bool differs = agreement->mine.signature != agreement->first.signature;
    agreement->vote[0] = differs ? (uint64_t)(comm->size - comm->rank) : 0;
    start_stage(agreement, comm->backend->vote_start(&agreement->request, comm, agreement->vote, 1),
                MIMO_AGREEMENT_SEARCH);
}

static void search_ended(mimo_agreement *agreement)
{
    tell(agreement, &agreement->mine, lowest_voter(agreement), MIMO_AGREEMENT_OTHER);
}

static void other_ended(mimo_agreement *agreement)
{
    const char *other = agreement->mine.call, *first = agreement->first.call;
    const char *same = strcmp(other, first) == 0
                           ? " (the same in words: an earlier call was missing or extra, or "
                             "descriptors differ)"
                           : "";
    end_with(agreement, mimo_fail(MIMO_ERR_MISMATCH, "rank %d called %s, rank 0 called %s%s",
                                  lowest_voter(agreement), other, first, same));
}

static void (*const stage_ended[])(mimo_agreement *agreement) = {
    [MIMO_AGREEMENT_VOTE] = vote_ended,   [MIMO_AGREEMENT_TELL] = tell_ended,
    [MIMO_AGREEMENT_FIRST] = first_ended, [MIMO_AGREEMENT_SEARCH] = search_ended,
    [MIMO_AGREEMENT_OTHER] = other_ended,
};

bool mimo_agreement_test(mimo_agreement *agreement)
{
    const mimo_comm_backend *backend = agreement->comm->backend;
    while (agreement->stage != MIMO_AGREEMENT_DONE) {
        bool done = false;
        mimo_status status = mimo_test(agreement->comm, agreement->request, &done);
        if (status != MIMO_OK) {
            end_with(agreement, status);
        } else if (!done) {
            return false;
        } else {
            backend->release(agreement->request);
            agreement->request = NULL;
            stage_ended[agreement->stage](agreement);
        }
    }
    return true;
}

mimo_status mimo_agree_as(mimo_comm *comm, mimo_agree_kind kind, mimo_status local,
                          uint64_t signature, const char *call)
{
    mimo_agreement agreement;
    const mimo_claim claim = {.kind = kind, .local = local, .signature = signature, .call = call};
    mimo_clock clock = {0, 0, 0};
    mimo_agreement_begin(&agreement, comm, &claim);
    while (!mimo_agreement_test(&agreement)) {
        mimo_pause(comm);
        (void)mimo_watch(comm, &clock, call); /* where it ends the wait, the next test says so */
    }
    return agreement.result;
}

mimo_status mimo_agree(mimo_comm *comm, mimo_status local, uint64_t signature, const char *call)
{
    return mimo_agree_as(comm, MIMO_AGREE_CALL, local, signature, call);
}

mimo_status mimo_comm_agree(mimo_comm *comm, mimo_status local)
{
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_comm_agree: comm is NULL");
    return mimo_agree_as(comm, MIMO_AGREE_ALWAYS, local, MIMO_HASH_START, "agree");
}
