#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <mimo/env.h>

#include "comm/agreement.h"
#include "comm/calls.h"
#include "comm/recorder.h"
#include "comm/waiter.h"
#include "core/check.h"
#include "core/letters.h"
#include "device/profile.h"

static void join_list(mimo_agreement *agreement)
{
    mimo_agreement **last = &agreement->comm->agreements;
    while (*last)
        last = &(*last)->next;
    *last = agreement;
}

static void leave_list(const mimo_agreement *agreement)
{
    mimo_agreement **at = &agreement->comm->agreements;
    while (*at && *at != agreement)
        at = &(*at)->next;
    if (*at)
        *at = agreement->next;
}

static void end_with(mimo_agreement *agreement, mimo_status result)
{
    leave_list(agreement);
    agreement->comm->backend->release(agreement->request);
    agreement->request = NULL;
    agreement->result = result;
    if (result != MIMO_OK)
        mimo_copy_text(agreement->sentence, sizeof agreement->sentence, mimo_last_error());
    agreement->state = MIMO_AGREEMENT_DONE;
    if (!agreement->is_op)
        mimo_record_agreed(agreement->comm, result);
}

static void start_state(mimo_agreement *agreement, mimo_status started, int state)
{
    agreement->state = state;
    if (started != MIMO_OK)
        end_with(agreement, started);
}

static mimo_status read_level(int64_t *out, const mimo_comm *comm)
{
    *out = comm->family->agree;
    if (*out != MIMO_FROM_ENV)
        return MIMO_OK;
    MIMO_TRY(mimo_env_get(out, MIMO_ENV_AGREE));
    MIMO_CHECK(*out == 0 || *out == 1, MIMO_ERR_ARGUMENT,
               "environment MIMO_AGREE=%" PRId64 " is neither 0 nor 1", *out);
    return MIMO_OK;
}

mimo_status mimo_comm_checks(int64_t *out, const mimo_comm *comm)
{
    *out = comm->family->checks;
    return *out != MIMO_FROM_ENV ? MIMO_OK : mimo_env_get(out, MIMO_ENV_CHECK);
}

static mimo_status read_calls(bool *out, const mimo_comm *comm)
{
    int64_t checks;
    MIMO_TRY(mimo_comm_checks(&checks, comm));
    *out = (checks & MIMO_CHECK_CALLS) != 0;
    return MIMO_OK;
}

/* An environment is long, so only the variables that matter are looked up. */
mimo_status mimo_agreement_wanted(bool *out, const mimo_comm *comm, mimo_agree_kind kind)
{
    int64_t level = 0;
    *out = true;
    if (kind == MIMO_AGREE_ALWAYS || kind == MIMO_AGREE_CREATE)
        return MIMO_OK;
    if (kind != MIMO_AGREE_DATA || !comm->device->enqueues)
        MIMO_TRY(read_level(&level, comm));
    return level > 0 ? MIMO_OK : read_calls(out, comm);
}

mimo_status mimo_agreement_removed(bool *out, const mimo_comm *comm)
{
    int64_t level;
    MIMO_TRY(read_level(&level, comm));
    *out = level == 0;
    return MIMO_OK;
}

enum { POLICY_NO_AGREE = 1, POLICY_CALLS = 2 };

static const char *const policy_text[] = {
    [0] = "",
    [POLICY_NO_AGREE] = " under MIMO_AGREE=0",
    [POLICY_CALLS] = " under MIMO_CHECK=calls",
    [POLICY_NO_AGREE | POLICY_CALLS] = " under MIMO_AGREE=0 and MIMO_CHECK=calls",
};

mimo_status mimo_agreement_policy(int32_t *out, const mimo_comm *comm)
{
    bool removed, calls;
    MIMO_TRY(mimo_agreement_removed(&removed, comm));
    MIMO_TRY(read_calls(&calls, comm));
    *out = (removed ? POLICY_NO_AGREE : 0) | (calls ? POLICY_CALLS : 0);
    return MIMO_OK;
}

static mimo_status read_wanted(bool *wanted, int32_t *policy, const mimo_comm *comm,
                               mimo_agree_kind kind)
{
    if (kind == MIMO_AGREE_CREATE)
        MIMO_TRY(mimo_agreement_policy(policy, comm));
    return mimo_agreement_wanted(wanted, comm, kind);
}

/* A value and its complement. After the MAX they are still complements where all ranks had the same
 * value, and only there. */
static void set_pair(uint64_t pair[2], uint64_t value)
{
    pair[0] = value;
    pair[1] = ~value;
}

static bool all_equal(const uint64_t pair[2])
{
    return pair[0] == ~pair[1];
}

/* The hash of the call with its first k items; of the whole call where k is larger than their
 * number. */
static uint64_t hash_of(const mimo_agreement *agreement, int64_t k)
{
    const mimo_call_items *items = &agreement->items;
    bool whole = items->count == 0 || k > items->count;
    return mimo_hash_int(whole ? agreement->signature : items->hash(items->context, k),
                         (int64_t)agreement->salt);
}

/* The salt holds what must agree before items can be compared: the number of the call, the
 * environment and the number of items. */
static void sign(mimo_agreement *agreement, const mimo_claim *claim, uint64_t number)
{
    agreement->items = claim->items;
    agreement->signature = claim->signature;
    agreement->salt = mimo_hash_int(
        mimo_hash_int(mimo_hash_int(MIMO_HASH_START, (int64_t)number), agreement->mine.policy),
        claim->items.count);
    agreement->mine.signature = hash_of(agreement, claim->items.count + 1);
}

void mimo_agreement_begin(mimo_agreement *agreement, mimo_comm *comm, const mimo_claim *claim)
{
    bool wanted = true;
    mimo_status local = claim->local;
    memset(agreement, 0, sizeof *agreement);
    agreement->comm = comm;
    agreement->same_guess = true;
    uint64_t number = comm->calls++;
    agreement->is_op = claim->record != NULL;
    mimo_record_begin(comm, number, claim->record);
    mimo_call_report *mine = &agreement->mine;
    if (claim->call)
        mimo_copy_text(mine->call, sizeof mine->call, claim->call);
    else if (mimo_comm_deadline(comm) > 0)
        claim->items.describe(mine->call, claim->items.context, -1);
    mimo_status ended = mimo_check_farewells(comm, mine->call);
    if (ended != MIMO_OK) {
        end_with(agreement, ended);
        return;
    }
    if (local == MIMO_OK) {
        local = read_wanted(&wanted, &mine->policy, comm, claim->kind);
    } else {
        mimo_copy_text(mine->sentence, sizeof mine->sentence, mimo_last_error());
        if (mimo_agreement_wanted(&wanted, comm, claim->kind) != MIMO_OK)
            mimo_fail(local, "%s", mine->sentence); /* the first error is reported */
    }
    if (!wanted || comm->size == 1) {
        end_with(agreement, local);
        return;
    }
    sign(agreement, claim, number);
    mine->status = (int32_t)local;
    if (local != MIMO_OK)
        mimo_copy_text(mine->sentence, sizeof mine->sentence, mimo_last_error());
    agreement->values[0] = local == MIMO_OK ? 0 : (uint64_t)(comm->size - comm->rank);
    set_pair(&agreement->values[1], mine->signature);
    set_pair(&agreement->values[3], claim->guess);
    join_list(agreement);
    start_state(agreement,
                comm->backend->host_max_start(&agreement->request, comm, agreement->values, 5),
                MIMO_AGREEMENT_STATUS);
}

/* The lowest rank whose values[0] was not 0: there it was size - rank. */
static int lowest_marked(const mimo_agreement *agreement)
{
    return agreement->comm->size - (int)agreement->values[0];
}

/* Where all that follows the first MAX moves. */
static mimo_comm *words_of(const mimo_agreement *agreement)
{
    return agreement->comm->words ? agreement->comm->words : agreement->comm;
}

static void start_max(mimo_agreement *agreement, uint64_t *values, int count, int state)
{
    mimo_comm *comm = words_of(agreement);
    start_state(agreement, comm->backend->host_max_start(&agreement->request, comm, values, count),
                state);
}

static void broadcast_report(mimo_agreement *agreement, mimo_call_report *report, int root,
                             int state)
{
    mimo_comm *comm = words_of(agreement);
    start_state(agreement,
                comm->backend->host_broadcast_start(&agreement->request, comm, report,
                                                    (int)sizeof *report, root),
                state);
}

/* Rank 0 broadcasts what it called: the whole call, or the call with the item that was found. */
static void broadcast_first(mimo_agreement *agreement)
{
    const mimo_call_items *items = &agreement->items;
    agreement->mine.signature = hash_of(agreement, agreement->unequal);
    bool one = items->count > 0 && agreement->unequal <= items->count;
    if (one || !agreement->mine.call[0])
        items->describe(agreement->mine.call, items->context, one ? agreement->unequal - 1 : -1);
    agreement->first = agreement->mine;
    broadcast_report(agreement, &agreement->first, 0, MIMO_AGREEMENT_FIRST);
}

/* How many items the next MAX compares: none at first, then half of those in question. */
static int64_t items_to_compare(const mimo_agreement *agreement)
{
    return agreement->equal < 0 ? 0
                                : agreement->equal + (agreement->unequal - agreement->equal) / 2;
}

static void compare_items(mimo_agreement *agreement)
{
    set_pair(&agreement->values[1], hash_of(agreement, items_to_compare(agreement)));
    start_max(agreement, &agreement->values[1], 2, MIMO_AGREEMENT_ITEMS);
}

/* Ranks can differ without their items. Then they may have different numbers of items, so all of
 * them stop searching here. */
static void items_ended(mimo_agreement *agreement)
{
    bool equal = all_equal(&agreement->values[1]);
    int64_t compared = items_to_compare(agreement);
    if (equal) {
        agreement->equal = compared;
    } else if (compared > 0) {
        agreement->unequal = compared;
    } else {
        broadcast_first(agreement);
        return;
    }
    if (agreement->unequal - agreement->equal > 1)
        compare_items(agreement);
    else
        broadcast_first(agreement);
}

static void status_ended(mimo_agreement *agreement)
{
    if (agreement->values[0] > 0 || !all_equal(&agreement->values[1])) {
        agreement->state = MIMO_AGREEMENT_TURN;
        return;
    }
    agreement->same_guess = all_equal(&agreement->values[3]);
    end_with(agreement, MIMO_OK);
}

/* Whether all that began before have ended: they move on here. */
static bool has_turn(const mimo_agreement *agreement)
{
    const mimo_comm *comm = agreement->comm;
    while (comm->agreements != agreement)
        if (!mimo_agreement_test(comm->agreements))
            return false;
    return true;
}

static void explain(mimo_agreement *agreement)
{
    mimo_status ended = mimo_comm_check(agreement->comm);
    if (ended != MIMO_OK) {
        end_with(agreement, ended);
    } else if (agreement->values[0] > 0) {
        broadcast_report(agreement, &agreement->mine, lowest_marked(agreement),
                         MIMO_AGREEMENT_SENTENCE);
    } else {
        agreement->equal = -1;
        agreement->unequal = agreement->items.count + 1;
        compare_items(agreement);
    }
}

static void sentence_ended(mimo_agreement *agreement)
{
    mimo_status status = (mimo_status)agreement->mine.status;
    end_with(agreement,
             mimo_fail(status, "rank %d: %s", lowest_marked(agreement), agreement->mine.sentence));
}

static void first_ended(mimo_agreement *agreement)
{
    const mimo_comm *comm = agreement->comm;
    bool differs = agreement->mine.signature != agreement->first.signature;
    agreement->values[0] = differs ? (uint64_t)(comm->size - comm->rank) : 0;
    start_max(agreement, agreement->values, 1, MIMO_AGREEMENT_SEARCH);
}

static void search_ended(mimo_agreement *agreement)
{
    broadcast_report(agreement, &agreement->mine, lowest_marked(agreement), MIMO_AGREEMENT_OTHER);
}

static void other_ended(mimo_agreement *agreement)
{
    const mimo_call_report *other = &agreement->mine, *first = &agreement->first;
    bool differs = other->policy != first->policy;
    const char *same = !differs && strcmp(other->call, first->call) == 0
                           ? " (the same in words: an earlier call was missing or extra, or "
                             "descriptors differ)"
                           : "";
    end_with(agreement, mimo_fail(MIMO_ERR_MISMATCH, "rank %d called %s%s, rank 0 called %s%s%s",
                                  lowest_marked(agreement), other->call,
                                  policy_text[differs ? other->policy : 0], first->call,
                                  policy_text[differs ? first->policy : 0], same));
}

static void (*const state_ended[])(mimo_agreement *agreement) = {
    [MIMO_AGREEMENT_STATUS] = status_ended, [MIMO_AGREEMENT_SENTENCE] = sentence_ended,
    [MIMO_AGREEMENT_ITEMS] = items_ended,   [MIMO_AGREEMENT_FIRST] = first_ended,
    [MIMO_AGREEMENT_SEARCH] = search_ended, [MIMO_AGREEMENT_OTHER] = other_ended,
};

/* Go on with what is in flight. False where it still is. */
static bool test_request(mimo_agreement *agreement)
{
    bool done = false;
    mimo_status status = mimo_test(agreement->comm, agreement->request, &done);
    if (status != MIMO_OK) {
        end_with(agreement, status);
    } else if (done) {
        agreement->comm->backend->release(agreement->request);
        agreement->request = NULL;
        state_ended[agreement->state](agreement);
    }
    return done || status != MIMO_OK;
}

bool mimo_agreement_test(mimo_agreement *agreement)
{
    while (agreement->state != MIMO_AGREEMENT_DONE) {
        bool turns = agreement->state == MIMO_AGREEMENT_TURN;
        if (turns ? !has_turn(agreement) : !test_request(agreement))
            return false;
        if (turns)
            explain(agreement);
    }
    if (agreement->result != MIMO_OK) /* others may have failed since it ended */
        mimo_fail(agreement->result, "%s", agreement->sentence);
    return true;
}

mimo_status mimo_agree_on(mimo_comm *comm, const mimo_claim *claim)
{
    mimo_agreement agreement;
    mimo_waiter waiter = {.comm = comm, .call = claim->call};
    mimo_agreement_begin(&agreement, comm, claim);
    while (!mimo_agreement_test(&agreement))
        (void)mimo_waiter_step(&waiter, comm); /* after an error the test gives the same one */
    mimo_record_wait_over(&waiter);
    return agreement.result;
}

mimo_status mimo_agree_as(mimo_comm *comm, mimo_agree_kind kind, mimo_status local,
                          uint64_t signature, const char *call)
{
    const mimo_claim claim = {.kind = kind, .local = local, .signature = signature, .call = call};
    return mimo_agree_on(comm, &claim);
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

mimo_status mimo_checked_status(mimo_status local, const char *call)
{
    return is_status(local)
               ? local
               : mimo_fail(MIMO_ERR_ARGUMENT, "%s: %d is no mimo_status", call, (int)local);
}

mimo_status mimo_refused_status(mimo_status local, const char *call)
{
    MIMO_CHECK(local != MIMO_OK, MIMO_ERR_ARGUMENT, "%s: MIMO_OK is no error", call);
    return mimo_checked_status(local, call);
}

mimo_status mimo_comm_agree(mimo_comm *comm, mimo_status local)
{
    MIMO_RANGE();
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_comm_agree: comm is NULL");
    MIMO_ENTER(comm, "mimo_comm_agree");
    return mimo_agree_as(comm, MIMO_AGREE_ALWAYS, mimo_checked_status(local, "mimo_comm_agree"),
                         mimo_signature_start(MIMO_CALL_COMM_AGREE), "agree");
}

mimo_status mimo_comm_agree_named(mimo_comm *comm, mimo_status local, const char *name)
{
    MIMO_RANGE();
    MIMO_CHECK(comm, MIMO_ERR_ARGUMENT, "mimo_comm_agree_named: comm is NULL");
    MIMO_ENTER(comm, "mimo_comm_agree_named");
    local = mimo_checked_status(local, "mimo_comm_agree_named");
    if (local == MIMO_OK && !name)
        local = mimo_fail(MIMO_ERR_ARGUMENT, "mimo_comm_agree_named: name is NULL");
    const char *call = name ? name : "agree";
    mimo_record_object(comm, call);
    uint64_t signature =
        mimo_hash_bytes(mimo_signature_start(MIMO_CALL_COMM_AGREE), call, strlen(call));
    return mimo_agree_as(comm, MIMO_AGREE_ALWAYS, local, signature, call);
}
