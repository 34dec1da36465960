#include "comm/survivors_rule.h"

#include <string.h>

#include "core/memory.h"

enum { BITS = 64, SETS = 7 };

/* ----------------------------------- sets of ranks ---------------------------------- */

static bool covers(const uint64_t *set, const uint64_t *wanted, int words)
{
    for (int i = 0; i < words; i++)
        if (wanted[i] & ~set[i])
            return false;
    return true;
}

static bool meets(const uint64_t *a, const uint64_t *b, int words)
{
    for (int i = 0; i < words; i++)
        if (a[i] & b[i])
            return true;
    return false;
}

static int first_of(const uint64_t *set, int words)
{
    for (int i = 0; i < words; i++)
        if (set[i])
            return i * BITS + __builtin_ctzll(set[i]);
    return -1;
}

static void clear(const mimo_survivors_rule *rule, uint64_t *set)
{
    memset(set, 0, (size_t)rule->words * sizeof *set);
}

static void copy(const mimo_survivors_rule *rule, uint64_t *to, const uint64_t *from)
{
    memcpy(to, from, (size_t)rule->words * sizeof *to);
}

/* -------------------------------------- its life ------------------------------------ */

mimo_status mimo_survivors_rule_create(mimo_survivors_rule **out, int rank, int size)
{
    mimo_survivors_rule *made;
    uint64_t *sets = NULL;
    int words = mimo_survivors_words(size);
    MIMO_TRY(mimo_reserve(&made, 1, sizeof *made));
    mimo_status status = mimo_reserve(&made->rounds, size, sizeof *made->rounds);
    if (status == MIMO_OK)
        status = mimo_reserve(&made->leasts, size, sizeof *made->leasts);
    if (status == MIMO_OK)
        status = mimo_reserve(&sets, (int64_t)SETS * words, sizeof *sets);
    made->here = sets;
    if (status == MIMO_OK)
        status = mimo_reserve(&made->draft, mimo_survivors_message_bytes(size), 1);
    if (status != MIMO_OK) {
        mimo_survivors_rule_destroy(made);
        return status;
    }
    uint64_t **places[SETS] = {&made->here,  &made->gone,    &made->members, &made->accepted,
                               &made->ready, &made->missing, &made->without};
    for (int i = 0; i < SETS; i++)
        *places[i] = sets + (size_t)i * (size_t)words;
    made->rank = rank;
    made->size = size;
    made->words = words;
    *out = made;
    return MIMO_OK;
}

void mimo_survivors_rule_destroy(mimo_survivors_rule *rule)
{
    if (!rule)
        return;
    mimo_release(rule->rounds);
    mimo_release(rule->leasts);
    mimo_release(rule->here);
    mimo_release(rule->draft);
    mimo_release(rule);
}

/* -------------------------------------- messages ------------------------------------ */

static const mimo_survivors_message *write(mimo_survivors_rule *rule, mimo_survivors_kind kind)
{
    mimo_survivors_message *it = rule->draft;
    it->kind = (int32_t)kind;
    it->from = rule->rank;
    it->round = rule->round;
    it->least = rule->leasts[rule->rank];
    copy(rule, it->members, rule->members);
    return it;
}

static void send_to(mimo_survivors_rule *rule, const uint64_t *set, mimo_survivors_kind kind,
                    const mimo_survivors_mail *mail)
{
    const mimo_survivors_message *message = write(rule, kind);
    for (int i = 1; i < rule->size; i++) {
        int to = (rule->rank + i) % rule->size;
        if ((!set || mimo_ranks_have(set, to)) && !mimo_ranks_have(rule->gone, to))
            mail->send(mail->context, to, message);
    }
}

static void say_here(mimo_survivors_rule *rule, const mimo_survivors_mail *mail)
{
    rule->rounds[rule->rank] = rule->round;
    send_to(rule, NULL, MIMO_SURVIVORS_HERE, mail);
}

void mimo_survivors_begin(mimo_survivors_rule *rule, int64_t now, int64_t limit, int least,
                          const mimo_survivors_mail *mail)
{
    rule->round++;
    for (int i = 0; i < rule->size; i++)
        if (rule->rounds[i] > rule->round)
            rule->round = rule->rounds[i];
    rule->phase = MIMO_SURVIVORS_GATHERING;
    rule->limit = limit;
    rule->entered = rule->began = now;
    rule->leasts[rule->rank] = least;
    rule->committed = false;
    uint64_t *const of_a_round[] = {rule->members, rule->accepted, rule->ready, rule->missing};
    for (int i = 0; i < (int)(sizeof of_a_round / sizeof of_a_round[0]); i++)
        clear(rule, of_a_round[i]);
    say_here(rule, mail);
}

/* A rank that takes part in a later round has left this one. */
static void receive_here(mimo_survivors_rule *rule, int64_t now,
                         const mimo_survivors_message *message, const mimo_survivors_mail *mail)
{
    if (message->round > rule->rounds[message->from]) {
        rule->rounds[message->from] = message->round;
        rule->leasts[message->from] = message->least;
    }
    if (rule->phase == MIMO_SURVIVORS_GATHERING && rule->round > 0 &&
        message->round > rule->round) {
        rule->round = message->round;
        rule->began = now;
        say_here(rule, mail);
    }
}

static void accept(mimo_survivors_rule *rule, int64_t now, const mimo_survivors_message *message,
                   const mimo_survivors_mail *mail)
{
    if (rule->phase != MIMO_SURVIVORS_GATHERING || message->round != rule->round ||
        !mimo_ranks_have(message->members, rule->rank))
        return;
    copy(rule, rule->members, message->members);
    rule->proposer = message->from;
    rule->phase = MIMO_SURVIVORS_ACCEPTED;
    rule->since = now;
    mail->send(mail->context, rule->proposer, write(rule, MIMO_SURVIVORS_ACCEPT));
}

static void receive_ready(mimo_survivors_rule *rule, const mimo_survivors_message *message)
{
    size_t bytes = (size_t)rule->words * sizeof *rule->members;
    if (!mimo_ranks_have(message->members, rule->rank)) {
        if (message->round < rule->without_round)
            return;
        rule->without_round = message->round;
        copy(rule, rule->without, message->members);
        return;
    }
    if (message->round != rule->round || memcmp(message->members, rule->members, bytes) != 0)
        return;
    mimo_ranks_add(rule->ready, message->from);
    rule->committed = true;
}

void mimo_survivors_receive(mimo_survivors_rule *rule, int64_t now,
                            const mimo_survivors_message *message, const mimo_survivors_mail *mail)
{
    if (message->from < 0 || message->from >= rule->size || message->from == rule->rank)
        return;
    bool same = message->round == rule->round;
    switch (message->kind) {
    case MIMO_SURVIVORS_HERE:
        receive_here(rule, now, message, mail);
        break;
    case MIMO_SURVIVORS_PROPOSE:
        accept(rule, now, message, mail);
        break;
    case MIMO_SURVIVORS_ACCEPT:
        if (same && rule->phase == MIMO_SURVIVORS_PROPOSED)
            mimo_ranks_add(rule->accepted, message->from);
        break;
    case MIMO_SURVIVORS_COMMIT:
        if (same && rule->phase == MIMO_SURVIVORS_ACCEPTED && message->from == rule->proposer)
            rule->committed = true;
        break;
    case MIMO_SURVIVORS_READY:
        receive_ready(rule, message);
        break;
    default:
        break;
    }
}

void mimo_survivors_note_gone(mimo_survivors_rule *rule, int rank)
{
    mimo_ranks_add(rule->gone, rank);
}

/* -------------------------------------- conclusions --------------------------------- */

static void find_here(mimo_survivors_rule *rule)
{
    clear(rule, rule->here);
    rule->least = 0;
    for (int i = 0; i < rule->size; i++) {
        if (rule->rounds[i] != rule->round || mimo_ranks_have(rule->gone, i))
            continue;
        mimo_ranks_add(rule->here, i);
        if (rule->leasts[i] > rule->least)
            rule->least = rule->leasts[i];
    }
}

/* Nothing else can come: all others are here, or gone. */
static bool is_complete(const mimo_survivors_rule *rule)
{
    for (int i = 0; i < rule->size; i++)
        if (!mimo_ranks_have(rule->here, i) && !mimo_ranks_have(rule->gone, i))
            return false;
    return true;
}

/* Others went on without this rank, and none of them has begun a later round. */
static bool is_out(const mimo_survivors_rule *rule)
{
    if (rule->without_round == 0)
        return false;
    for (int i = 0; i < rule->size; i++)
        if (mimo_ranks_have(rule->without, i) && rule->rounds[i] > rule->without_round)
            return false;
    return true;
}

/* All but `set` are missing. */
static void give_up(mimo_survivors_rule *rule, const uint64_t *wanted, const uint64_t *set)
{
    for (int i = 0; i < rule->size; i++)
        if ((!wanted || mimo_ranks_have(wanted, i)) && !mimo_ranks_have(set, i) && i != rule->rank)
            mimo_ranks_add(rule->missing, i);
    rule->phase = MIMO_SURVIVORS_GIVEN_UP;
}

static void gather(mimo_survivors_rule *rule, int64_t now, const mimo_survivors_mail *mail)
{
    find_here(rule);
    bool closes = is_complete(rule) || now - rule->began >= rule->limit / 2;
    if (is_out(rule)) {
        copy(rule, rule->members, rule->without);
        rule->phase = MIMO_SURVIVORS_OUT;
    } else if (closes && mimo_ranks_count(rule->here, rule->words) < rule->least) {
        give_up(rule, NULL, rule->here);
        rule->phase = MIMO_SURVIVORS_TOO_FEW;
    } else if (closes && first_of(rule->here, rule->words) == rule->rank) {
        copy(rule, rule->members, rule->here);
        mimo_ranks_add(rule->accepted, rule->rank);
        rule->phase = MIMO_SURVIVORS_PROPOSED;
        rule->since = now;
        rule->proposer = rule->rank;
        send_to(rule, rule->members, MIMO_SURVIVORS_PROPOSE, mail);
    } else if (now - rule->began >= rule->limit || now - rule->entered >= 2 * rule->limit) {
        give_up(rule, NULL, rule->here);
        mimo_ranks_add(rule->missing, first_of(rule->here, rule->words));
    }
}

static void say_ready(mimo_survivors_rule *rule, const mimo_survivors_mail *mail)
{
    rule->phase = MIMO_SURVIVORS_COMMITTED;
    mimo_ranks_add(rule->ready, rule->rank);
    send_to(rule, NULL, MIMO_SURVIVORS_READY, mail);
}

static void propose(mimo_survivors_rule *rule, int64_t now, const mimo_survivors_mail *mail)
{
    if (now - rule->since > rule->limit / 8) {
        give_up(rule, rule->members, rule->accepted);
    } else if (covers(rule->accepted, rule->members, rule->words)) {
        send_to(rule, rule->members, MIMO_SURVIVORS_COMMIT, mail);
        say_ready(rule, mail);
    }
}

static void await_commit(mimo_survivors_rule *rule, int64_t now, const mimo_survivors_mail *mail)
{
    if (now - rule->since > rule->limit / 4) {
        give_up(rule, rule->members, rule->ready);
    } else if (rule->committed) {
        say_ready(rule, mail);
    }
}

static void await_ready(mimo_survivors_rule *rule, int64_t now)
{
    if (covers(rule->ready, rule->members, rule->words))
        rule->phase = MIMO_SURVIVORS_GO;
    else if (now - rule->since > rule->limit / 2)
        give_up(rule, rule->members, rule->ready);
}

/* A rank of the proposal is gone, or has left the round. */
static bool is_broken(mimo_survivors_rule *rule)
{
    for (int i = 0; i < rule->size; i++)
        if (mimo_ranks_have(rule->members, i) && i != rule->rank &&
            (mimo_ranks_have(rule->gone, i) || rule->rounds[i] > rule->round))
            mimo_ranks_add(rule->missing, i);
    return meets(rule->missing, rule->members, rule->words);
}

/* Behind this rank's own word it looks once more at what came: it may have stood still amid that
 * word, so that the others gave up. */
mimo_survivors_phase mimo_survivors_step(mimo_survivors_rule *rule, int64_t now,
                                         const mimo_survivors_mail *mail)
{
    const bool has_looked = rule->phase == MIMO_SURVIVORS_COMMITTED;
    if (mimo_survivors_has_ended(rule->phase))
        return rule->phase;
    if (rule->phase != MIMO_SURVIVORS_GATHERING && is_broken(rule))
        rule->phase = MIMO_SURVIVORS_GIVEN_UP;
    if (rule->phase == MIMO_SURVIVORS_GATHERING)
        gather(rule, now, mail);
    if (rule->phase == MIMO_SURVIVORS_PROPOSED)
        propose(rule, now, mail);
    if (rule->phase == MIMO_SURVIVORS_ACCEPTED)
        await_commit(rule, now, mail);
    if (rule->phase == MIMO_SURVIVORS_COMMITTED && has_looked)
        await_ready(rule, now);
    return rule->phase;
}
