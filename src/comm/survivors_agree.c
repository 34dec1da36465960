#include "comm/survivors_agree.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/recorder.h"
#include "core/memory.h"

static const char CALL[] = "mimo_comm_survivors"; /* in sentences */

enum { NAMES_TEXT = 192 }; /* of a list of ranks */

/* Nanoseconds. */
static const int64_t MILLISECOND = 1000000;
/* Between two looks at the processes of this host, and at what came. */
static const int64_t LIFE_GAP = 1000000;
static const int64_t NAP = 50000;
static const int64_t QUESTION_GAP = 50000000;

struct mimo_survivors {
    mimo_survivors_rule *rule;
    int *family_ranks; /* of the ranks of the communicator */
    mimo_survivors_message *inbox;
    int64_t looked, asked; /* at processes, and the caller's `interrupted`: mimo_now */
};

/* -------------------------------------- its life ------------------------------------ */

void mimo_survivors_release(mimo_survivors *it)
{
    if (!it)
        return;
    mimo_survivors_rule_destroy(it->rule);
    mimo_release(it->family_ranks);
    mimo_release(it->inbox);
    mimo_release(it);
}

static mimo_status fill(mimo_survivors *made, const mimo_comm *ended)
{
    int size = ended->size;
    MIMO_TRY(mimo_survivors_rule_create(&made->rule, ended->rank, size));
    MIMO_TRY(mimo_reserve(&made->family_ranks, size, sizeof *made->family_ranks));
    MIMO_TRY(mimo_reserve(&made->inbox, mimo_survivors_message_bytes(size), 1));
    ended->backend->family_ranks(ended, made->family_ranks);
    return MIMO_OK;
}

static mimo_status prepare(mimo_comm *ended)
{
    mimo_survivors *made;
    if (ended->survivors)
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    mimo_status status = fill(made, ended);
    if (status == MIMO_OK)
        ended->survivors = made;
    else
        mimo_survivors_release(made);
    return status;
}

/* -------------------------------------- sentences ----------------------------------- */

void mimo_survivors_write_ranks(char *text, size_t capacity, const uint64_t *set, int size)
{
    enum { LONGEST_RANK = 16 };
    int count = mimo_ranks_count(set, mimo_survivors_words(size)), listed = 0;
    size_t used = (size_t)snprintf(text, capacity, "%s ", count == 1 ? "rank" : "ranks");
    for (int i = 0; i < size; i++) {
        if (!mimo_ranks_have(set, i))
            continue;
        if (used + 2 * LONGEST_RANK >= capacity) {
            snprintf(text + used, capacity - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, capacity - used, "%s%d", listed++ ? ", " : "", i);
    }
}

/* Append "; rank 2 is gone", where `set` has a rank. */
static void append(char *text, size_t capacity, const mimo_survivors_rule *rule,
                   const uint64_t *set, const char *before, const char *behind)
{
    char names[NAMES_TEXT];
    size_t used = strlen(text);
    if (mimo_ranks_count(set, rule->words) == 0)
        return;
    mimo_survivors_write_ranks(names, sizeof names, set, rule->size);
    snprintf(text + used, capacity - used, "; %s%s%s", before, names, behind);
}

/* "; rank 2 is gone; rank 1 gave up; no sign of ranks 3, 5" of the missing ranks. Sets that the
 * end of a round frees are used. What stays in `missing` are silent ranks. */
static void write_missing(char *text, size_t capacity, mimo_survivors_rule *rule)
{
    uint64_t *silent = rule->missing, *dead = rule->accepted, *left = rule->ready;
    text[0] = '\0';
    memset(left, 0, (size_t)rule->words * sizeof *left);
    for (int i = 0; i < rule->size; i++)
        if (rule->rounds[i] > rule->round)
            mimo_ranks_add(left, i);
    for (int i = 0; i < rule->words; i++) {
        dead[i] = silent[i] & rule->gone[i];
        left[i] &= silent[i] & ~rule->gone[i];
        silent[i] &= ~(rule->gone[i] | left[i]);
    }
    append(text, capacity, rule, dead, "",
           mimo_ranks_count(dead, rule->words) == 1 ? " is gone" : " are gone");
    append(text, capacity, rule, left, "", " gave up");
    append(text, capacity, rule, silent, "no sign of ", "");
}

static mimo_status explain(const mimo_comm *ended, mimo_survivors_rule *rule)
{
    char names[NAMES_TEXT], missing[3 * NAMES_TEXT + 64];
    int64_t generation = ended->family->generation + rule->round;
    int64_t waited = (mimo_now() - rule->began) / MILLISECOND;
    if (rule->phase == MIMO_SURVIVORS_OUT) {
        mimo_survivors_write_ranks(names, sizeof names, rule->members, rule->size);
        return mimo_fail(MIMO_ERR_ABORTED,
                         "%s: %s went on without this one, rank %d, as generation %" PRId64, CALL,
                         names, rule->rank, ended->family->generation + rule->without_round);
    }
    int here = mimo_ranks_count(rule->here, rule->words);
    bool few = rule->phase == MIMO_SURVIVORS_TOO_FEW;
    write_missing(missing, sizeof missing, rule);
    bool for_good = mimo_ranks_count(rule->missing, rule->words) == 0; /* all of them are gone */
    if (few)
        return mimo_fail(for_good ? MIMO_ERR_STATE : MIMO_ERR_TIMEOUT,
                         "%s: %d of %d ranks are left after %" PRId64 " ms, and at least %" PRId64
                         " have to be%s",
                         CALL, here, rule->size, waited, rule->least, missing);
    return mimo_fail(MIMO_ERR_TIMEOUT,
                     "%s: given up after %" PRId64 " ms, for generation %" PRId64 "%s", CALL,
                     waited, generation, missing);
}

/* -------------------------------------- the wait ------------------------------------ */

/* Which processes of this host are gone. One that is stopped may go on. */
static void look_at_processes(mimo_survivors *it, const mimo_comm *ended, int64_t now)
{
    mimo_survivors_rule *rule = it->rule;
    if (it->looked > 0 && now - it->looked < LIFE_GAP)
        return;
    it->looked = now;
    for (int i = 0; i < rule->size; i++)
        if (i != rule->rank && !mimo_ranks_have(rule->gone, i) &&
            mimo_recorder_life(ended->family, it->family_ranks[i]) == MIMO_RING_GONE)
            mimo_survivors_note_gone(rule, i);
}

mimo_status mimo_survivors_introduce(mimo_comm *made, const mimo_comm *ended,
                                     const mimo_survivors_terms *terms)
{
    const mimo_recorder *from = ended->family->recorder;
    mimo_recorder *to = made->family->recorder;
    if (!from || !from->members || !to)
        return MIMO_OK;
    MIMO_TRY(mimo_reserve(&to->members, terms->count, sizeof *to->members));
    for (int i = 0; i < terms->count; i++)
        to->members[i] = from->members[ended->survivors->family_ranks[terms->ranks[i]]];
    return MIMO_OK;
}

/* A rank that has said READY does not leave: the others would wait for it in what follows. */
static mimo_status check_interrupted(mimo_survivors *it, const mimo_family *family, int64_t now)
{
    bool promised = it->rule->phase == MIMO_SURVIVORS_COMMITTED;
    if (!family->interrupted || promised || now - it->asked < QUESTION_GAP)
        return MIMO_OK;
    it->asked = now;
    MIMO_CHECK(family->interrupted(family->context) == 0, MIMO_ERR_ABORTED,
               "%s: its wait was interrupted", CALL);
    return MIMO_OK;
}

/* Nobody sleeps between its word and what follows: others wait there. */
static void rest(mimo_survivors_phase phase)
{
    const struct timespec time = {0, (long)NAP};
    if (phase == MIMO_SURVIVORS_COMMITTED)
        sched_yield();
    else
        (void)nanosleep(&time, NULL); /* a signal may end it early */
}

static mimo_status run_round(mimo_survivors *it, const mimo_comm *ended,
                             const mimo_survivors_carrier *carrier)
{
    int64_t bytes = mimo_survivors_message_bytes(ended->size);
    for (;;) {
        int64_t now = mimo_now();
        while (carrier->receive(carrier->mail.context, it->inbox, bytes))
            mimo_survivors_receive(it->rule, now, it->inbox, &carrier->mail);
        look_at_processes(it, ended, now);
        if (mimo_survivors_has_ended(mimo_survivors_step(it->rule, mimo_now(), &carrier->mail)))
            return MIMO_OK;
        MIMO_TRY(check_interrupted(it, ended->family, now));
        rest(it->rule->phase);
    }
}

mimo_status mimo_survivors_agree(mimo_survivors_terms *terms, mimo_comm *ended,
                                 const mimo_survivors_carrier *carrier)
{
    MIMO_TRY(prepare(ended));
    mimo_survivors *it = ended->survivors;
    mimo_survivors_rule *rule = it->rule;
    int64_t now = mimo_now();
    it->asked = now;
    look_at_processes(it, ended, now);
    mimo_survivors_begin(rule, now, terms->limit, terms->least, &carrier->mail);
    MIMO_TRY(run_round(it, ended, carrier));
    if (rule->phase != MIMO_SURVIVORS_GO)
        return explain(ended, rule);
    terms->count = 0;
    terms->round = rule->round;
    terms->generation = ended->family->generation + rule->round;
    for (int i = 0; i < rule->size; i++)
        if (mimo_ranks_have(rule->members, i))
            terms->ranks[terms->count++] = i;
    return MIMO_OK;
}
