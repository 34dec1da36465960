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

static mimo_status read_level(int64_t *out)
{
    MIMO_TRY(mimo_env_get(MIMO_ENV_AGREE, out));
    MIMO_CHECK(*out == 0 || *out == 1, MIMO_ERR_ARGUMENT,
               "environment MIMO_AGREE=%" PRId64 " is neither 0 nor 1", *out);
    return MIMO_OK;
}

static mimo_status read_calls(bool *out)
{
    int64_t checks;
    MIMO_TRY(mimo_env_get(MIMO_ENV_CHECK, &checks));
    *out = (checks & MIMO_CHECK_CALLS) != 0;
    return MIMO_OK;
}

/* An environment is long: what need not be known is not looked up. */
mimo_status mimo_agreement_wanted(bool *out, const mimo_comm *comm, mimo_agree_kind kind)
{
    int64_t level = 0;
    *out = true;
    if (kind == MIMO_AGREE_ALWAYS || kind == MIMO_AGREE_CREATE)
        return MIMO_OK;
    if (kind != MIMO_AGREE_DATA || !comm->device->enqueues)
        MIMO_TRY(read_level(&level));
    return level > 0 ? MIMO_OK : read_calls(out);
}

/* What the environment says about agreements. Ranks that differ in it would wait for each other in
 * the next call, so creations compare it. */
enum { POLICY_NO_AGREE = 1, POLICY_CALLS = 2 };

static const char *const policy_words[] = {
    [0] = "",
    [POLICY_NO_AGREE] = " under MIMO_AGREE=0",
    [POLICY_CALLS] = " under MIMO_CHECK=calls",
    [POLICY_NO_AGREE | POLICY_CALLS] = " under MIMO_AGREE=0 and MIMO_CHECK=calls",
};

static mimo_status read_policy(int32_t *out)
{
    int64_t level;
    bool calls;
    MIMO_TRY(read_level(&level));
    MIMO_TRY(read_calls(&calls));
    *out = (level == 0 ? POLICY_NO_AGREE : 0) | (calls ? POLICY_CALLS : 0);
    return MIMO_OK;
}

static mimo_status read_environment(bool *wanted, int32_t *policy, const mimo_comm *comm,
                                    mimo_agree_kind kind)
{
    if (kind == MIMO_AGREE_CREATE)
        MIMO_TRY(read_policy(policy));
    return mimo_agreement_wanted(wanted, comm, kind);
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

/* The hash of the call as far as its first k parts; of the whole where k is past them. */
static uint64_t hash_of(const mimo_agreement *agreement, int64_t k)
{
    const mimo_call_parts *parts = &agreement->parts;
    bool whole = parts->count == 0 || k > parts->count;
    return mimo_hash_int(whole ? agreement->signature : parts->hash(parts->context, k),
                         (int64_t)agreement->salt);
}

/* Calls with different numbers, environments or numbers of parts differ before their parts do. */
static void sign(mimo_agreement *agreement, const mimo_claim *claim, uint64_t number)
{
    agreement->parts = claim->parts;
    agreement->signature = claim->signature;
    agreement->salt = mimo_hash_int(
        mimo_hash_int(mimo_hash_int(MIMO_HASH_START, (int64_t)number), agreement->mine.policy),
        claim->parts.count);
    agreement->mine.signature = hash_of(agreement, claim->parts.count + 1);
}

void mimo_agreement_begin(mimo_agreement *agreement, mimo_comm *comm, const mimo_claim *claim)
{
    bool wanted = true;
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
        local = read_environment(&wanted, &mine->policy, comm, claim->kind);
    } else {
        snprintf(mine->sentence, sizeof mine->sentence, "%s", mimo_last_error());
        if (mimo_agreement_wanted(&wanted, comm, claim->kind) != MIMO_OK)
            mimo_fail(local, "%s", mine->sentence); /* the first error is reported */
    }
    if (!wanted || comm->size == 1) {
        end_with(agreement, local);
        return;
    }
    sign(agreement, claim, number);
    mine->status = (int32_t)local;
    snprintf(mine->call, sizeof mine->call, "%s", claim->call);
    if (local != MIMO_OK)
        snprintf(mine->sentence, sizeof mine->sentence, "%s", mimo_last_error());
    agreement->vote[0] = local == MIMO_OK ? 0 : (uint64_t)(comm->size - comm->rank);
    vote_word(&agreement->vote[1], mine->signature);
    vote_word(&agreement->vote[3], claim->guess);
    start_stage(agreement,
                comm->backend->host_max_start(&agreement->request, comm, agreement->vote, 5),
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
    start_stage(agreement,
                comm->backend->host_broadcast_start(&agreement->request, comm, verdict,
                                                    (int)sizeof *verdict, root),
                stage);
}

/* Have rank 0 tell what it called, whole or with the part that was found. */
static void compare(mimo_agreement *agreement)
{
    const mimo_call_parts *parts = &agreement->parts;
    agreement->mine.signature = hash_of(agreement, agreement->other);
    if (parts->count > 0 && agreement->other <= parts->count)
        parts->words(agreement->mine.call, parts->context, agreement->other - 1);
    agreement->first = agreement->mine;
    tell(agreement, &agreement->first, 0, MIMO_AGREEMENT_FIRST);
}

/* The parts that the next vote takes in: none at first, then half of those in question. */
static int64_t parts_asked(const mimo_agreement *agreement)
{
    return agreement->same < 0 ? 0 : agreement->same + (agreement->other - agreement->same) / 2;
}

static void ask_parts(mimo_agreement *agreement)
{
    mimo_comm *comm = agreement->comm;
    vote_word(&agreement->vote[1], hash_of(agreement, parts_asked(agreement)));
    start_stage(agreement,
                comm->backend->host_max_start(&agreement->request, comm, &agreement->vote[1], 2),
                MIMO_AGREEMENT_PARTS);
}

/* Ranks that differ in what is no part may not even have parts: all of them stop here. */
static void parts_ended(mimo_agreement *agreement)
{
    bool alike = all_equal(&agreement->vote[1]);
    int64_t asked = parts_asked(agreement);
    if (alike) {
        agreement->same = asked;
    } else if (asked > 0) {
        agreement->other = asked;
    } else {
        compare(agreement);
        return;
    }
    if (agreement->other - agreement->same > 1)
        ask_parts(agreement);
    else
        compare(agreement);
}

static void vote_ended(mimo_agreement *agreement)
{
    if (agreement->vote[0] > 0) {
        tell(agreement, &agreement->mine, lowest_voter(agreement), MIMO_AGREEMENT_TELL);
    } else if (all_equal(&agreement->vote[1])) {
        agreement->same_guess = all_equal(&agreement->vote[3]);
        end_with(agreement, MIMO_OK);
    } else {
        agreement->same = -1;
        agreement->other = agreement->parts.count + 1;
        ask_parts(agreement);
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
    start_stage(agreement,
                comm->backend->host_max_start(&agreement->request, comm, agreement->vote, 1),
                MIMO_AGREEMENT_SEARCH);
}

static void search_ended(mimo_agreement *agreement)
{
    tell(agreement, &agreement->mine, lowest_voter(agreement), MIMO_AGREEMENT_OTHER);
}

static void other_ended(mimo_agreement *agreement)
{
    const mimo_verdict *other = &agreement->mine, *first = &agreement->first;
    bool differs = other->policy != first->policy;
    const char *same = !differs && strcmp(other->call, first->call) == 0
                           ? " (the same in words: an earlier call was missing or extra, or "
                             "descriptors differ)"
                           : "";
    end_with(agreement, mimo_fail(MIMO_ERR_MISMATCH, "rank %d called %s%s, rank 0 called %s%s%s",
                                  lowest_voter(agreement), other->call,
                                  policy_words[differs ? other->policy : 0], first->call,
                                  policy_words[differs ? first->policy : 0], same));
}

static void (*const stage_ended[])(mimo_agreement *agreement) = {
    [MIMO_AGREEMENT_VOTE] = vote_ended,     [MIMO_AGREEMENT_TELL] = tell_ended,
    [MIMO_AGREEMENT_PARTS] = parts_ended,   [MIMO_AGREEMENT_FIRST] = first_ended,
    [MIMO_AGREEMENT_SEARCH] = search_ended, [MIMO_AGREEMENT_OTHER] = other_ended,
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

mimo_status mimo_agree_on(mimo_comm *comm, const mimo_claim *claim)
{
    mimo_agreement agreement;
    mimo_clock clock = {0, 0, 0};
    mimo_agreement_begin(&agreement, comm, claim);
    while (!mimo_agreement_test(&agreement)) {
        mimo_pause(comm);
        (void)mimo_watch(comm, &clock, claim->call); /* where it ends, the next test says so */
    }
    return agreement.result;
}

mimo_status mimo_agree_as(mimo_comm *comm, mimo_agree_kind kind, mimo_status local,
                          uint64_t signature, const char *call)
{
    const mimo_claim claim = {.kind = kind, .local = local, .signature = signature, .call = call};
    return mimo_agree_on(comm, &claim);
}

mimo_status mimo_agree(mimo_comm *comm, mimo_status local, uint64_t signature, const char *call)
{
    return mimo_agree_as(comm, MIMO_AGREE_CALL, local, signature, call);
}

static bool is_status(mimo_status status)
{
    switch (status) {
#define KNOWN(name, value, text) \
    case name:                   \
        return true;
        MIMO_STATUS_LIST(KNOWN)
#undef KNOWN
    }
    return false;
}

mimo_status mimo_comm_agree(mimo_comm *comm, mimo_status local)
{
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_comm_agree: comm is NULL");
    if (!is_status(local))
        local = mimo_fail(MIMO_ERR_ARGUMENT, "mimo_comm_agree: %d is no mimo_status", (int)local);
    return mimo_agree_as(comm, MIMO_AGREE_ALWAYS, local, MIMO_HASH_START, "agree");
}
