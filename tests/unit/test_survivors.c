/* Who goes on (comm/survivors_rule.h), among virtual ranks. Messages take random times and keep
 * their order between two ranks; ranks come late, die, also amid their messages, and are stopped
 * for a while. Whatever happens, those that go on know the same. */

#include <stdlib.h>
#include <string.h>

#include "comm/survivors_rule.h"
#include "core/memory.h"
#include "expect_failure.h"

enum { MOST = 9, LIMIT = 8000, DELAY = 20, STEP = 10, ATTEMPTS = 6, LETTERS = 1 << 15 };

static const int64_t NEVER = INT64_MAX;

typedef struct letter {
    int64_t arrives;
    int to;
    mimo_survivors_message *message;
} letter;

typedef struct virtual_rank {
    mimo_survivors_rule *rule;
    int64_t begins, next; /* its call; its next step */
    int64_t dies;         /* when; NEVER */
    int dies_in_send;     /* or amid its n-th message; 0: not so */
    int64_t stops, wakes;
    int sent, attempts, least;
    bool dead, ready, ended; /* `ready`: it has said so to somebody, in its last round */
    mimo_survivors_phase phase;
} virtual_rank;

typedef struct world {
    int size, least;
    int64_t now;
    bool on_one_host; /* the dead are known */
    uint64_t seed;
    virtual_rank ranks[MOST];
    letter letters[LETTERS];
    int first, last;
    int64_t arrived[MOST][MOST]; /* of the last message between two ranks */
    int from;                    /* whose mail is in use */
} world;

static uint64_t draw(world *it, uint64_t below)
{
    it->seed ^= it->seed << 13;
    it->seed ^= it->seed >> 7;
    it->seed ^= it->seed << 17;
    return it->seed % below;
}

/* --------------------------------------- mail --------------------------------------- */

static void post(void *context, int to, const mimo_survivors_message *message)
{
    world *it = context;
    virtual_rank *me = &it->ranks[it->from];
    int64_t bytes = mimo_survivors_message_bytes(it->size);
    if (me->dead)
        return;
    me->ready = me->ready || message->kind == MIMO_SURVIVORS_READY;
    me->dead = ++me->sent == me->dies_in_send;
    int64_t *arrived = &it->arrived[it->from][to];
    int64_t arrives = it->now + 1 + (int64_t)draw(it, DELAY);
    *arrived = arrives > *arrived ? arrives : *arrived;
    cr_assert_lt(it->last, LETTERS);
    letter *made = &it->letters[it->last++];
    *made = (letter){.arrives = *arrived, .to = to};
    SUCCEEDS(mimo_duplicate(&made->message, message, bytes, 1));
}

static mimo_survivors_mail mail_of(world *it, int rank)
{
    it->from = rank;
    return (mimo_survivors_mail){post, it};
}

static void receive_all(world *it, int rank)
{
    const mimo_survivors_mail mail = mail_of(it, rank);
    for (int i = 0; i < it->last; i++) {
        letter *each = &it->letters[i];
        if (!each->message || each->to != rank || each->arrives > it->now)
            continue;
        mimo_survivors_receive(it->ranks[rank].rule, it->now, each->message, &mail);
        mimo_release(each->message);
        each->message = NULL;
    }
}

/* --------------------------------------- ranks -------------------------------------- */

static void look(world *it, int rank)
{
    for (int i = 0; i < it->size && it->on_one_host; i++)
        if (it->ranks[i].dead)
            mimo_survivors_note_gone(it->ranks[rank].rule, i);
}

static void begin_attempt(world *it, int rank)
{
    virtual_rank *me = &it->ranks[rank];
    const mimo_survivors_mail mail = mail_of(it, rank);
    me->attempts++;
    me->ready = false;
    look(it, rank);
    mimo_survivors_begin(me->rule, it->now, LIMIT, me->least, &mail);
}

static void live(world *it, int rank)
{
    virtual_rank *me = &it->ranks[rank];
    if (me->attempts == 0)
        begin_attempt(it, rank);
    receive_all(it, rank);
    look(it, rank);
    const mimo_survivors_mail mail = mail_of(it, rank);
    me->phase = mimo_survivors_step(me->rule, it->now, &mail);
    if (!mimo_survivors_has_ended(me->phase))
        return;
    if (me->phase == MIMO_SURVIVORS_GIVEN_UP && me->attempts < ATTEMPTS)
        begin_attempt(it, rank);
    else
        me->ended = true;
}

static void tick(world *it)
{
    for (int r = 0; r < it->size; r++) {
        virtual_rank *me = &it->ranks[r];
        me->dead = me->dead || it->now >= me->dies;
        bool stopped = it->now >= me->stops && it->now < me->wakes;
        if (me->dead || me->ended || stopped || it->now < me->begins || it->now < me->next)
            continue;
        live(it, r);
        me->next = it->now + 1 + (int64_t)draw(it, STEP);
    }
    it->now++;
}

static bool has_ended(const world *it)
{
    for (int r = 0; r < it->size; r++)
        if (!it->ranks[r].dead && !it->ranks[r].ended)
            return false;
    return true;
}

static world *new_world(int size, int least, uint64_t seed)
{
    world *it;
    SUCCEEDS(mimo_reserve(&it, 1, sizeof *it));
    it->size = size;
    it->least = least;
    it->now = 1;
    it->seed = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
    it->on_one_host = true;
    for (int r = 0; r < size; r++) {
        virtual_rank *me = &it->ranks[r];
        SUCCEEDS(mimo_survivors_rule_create(&me->rule, r, size));
        me->begins = 1 + (int64_t)draw(it, 200);
        me->least = least;
        me->dies = me->stops = NEVER;
    }
    return it;
}

static void run(world *it)
{
    while (!has_ended(it) && it->now < 100 * LIMIT)
        tick(it);
    cr_assert(has_ended(it), "a rank waits for ever");
}

static void end(world *it)
{
    for (int i = 0; i < it->last; i++)
        mimo_release(it->letters[i].message);
    for (int r = 0; r < it->size; r++)
        mimo_survivors_rule_destroy(it->ranks[r].rule);
    mimo_release(it);
}

/* -------------------------------------- what holds ---------------------------------- */

/* A member that died after its word leaves the others waiting in what follows. They do nothing
 * more, so such a decision counts for nobody. */
static bool has_broken_its_word(const world *it, const mimo_survivors_rule *decision)
{
    for (int r = 0; r < it->size; r++)
        if (mimo_ranks_have(decision->members, r) && it->ranks[r].dead && it->ranks[r].ready)
            return true;
    return false;
}

static bool goes_on(const world *it, int rank)
{
    const virtual_rank *me = &it->ranks[rank];
    return !me->dead && me->ended && me->phase == MIMO_SURVIVORS_GO &&
           !has_broken_its_word(it, me->rule);
}

static void expect_together(const world *it, int rank, uint64_t seed)
{
    const mimo_survivors_rule *mine = it->ranks[rank].rule;
    cr_assert(mimo_ranks_have(mine->members, rank));
    cr_assert_geq(mimo_ranks_count(mine->members, 1), it->least);
    for (int r = 0; r < it->size; r++) {
        const mimo_survivors_rule *other = it->ranks[r].rule;
        if (goes_on(it, r))
            cr_assert(other->members[0] == mine->members[0] && other->round == mine->round,
                      "seed %llu: rank %d goes on with %llx in round %lld, rank %d with %llx in "
                      "round %lld",
                      (unsigned long long)seed, rank, (unsigned long long)mine->members[0],
                      (long long)mine->round, r, (unsigned long long)other->members[0],
                      (long long)other->round);
        else if (mimo_ranks_have(mine->members, r))
            cr_assert_fail("seed %llu: rank %d goes on, and rank %d of its group does not: %d",
                           (unsigned long long)seed, rank, r, (int)it->ranks[r].phase);
    }
}

static int expect_one_decision(const world *it, uint64_t seed)
{
    int going = 0;
    for (int r = 0; r < it->size; r++) {
        going += goes_on(it, r);
        if (goes_on(it, r))
            expect_together(it, r, seed);
    }
    return going;
}

Test(survivors, all_go_on_where_all_are_left)
{
    for (int size = 1; size <= MOST; size++) {
        world *it = new_world(size, size / 2 + 1, (uint64_t)size);
        run(it);
        cr_assert_eq(expect_one_decision(it, 0), size);
        cr_assert_lt(it->now, 400, "nobody is waited for once all are here: %lld",
                     (long long)it->now);
        end(it);
    }
}

Test(survivors, the_dead_are_left_out)
{
    for (int here = 0; here < 2; here++) {
        world *it = new_world(8, 5, 3);
        it->on_one_host = here;
        it->ranks[0].dies = it->ranks[5].dies = 0;
        run(it);
        cr_assert_eq(expect_one_decision(it, 3), 6);
        cr_assert_eq(it->ranks[1].rule->members[0], UINT64_C(0xde));
        cr_assert_eq(it->ranks[1].rule->round, 1);
        cr_assert(here ? it->now < 400 : it->now >= LIMIT / 2, "%lld", (long long)it->now);
        end(it);
    }
}

Test(survivors, too_few_are_left)
{
    world *it = new_world(8, 5, 4);
    for (int r = 0; r < 4; r++)
        it->ranks[2 * r].dies = 0;
    run(it);
    for (int r = 1; r < 8; r += 2) {
        cr_assert_eq(it->ranks[r].phase, MIMO_SURVIVORS_TOO_FEW);
        cr_assert_eq(it->ranks[r].rule->missing[0], UINT64_C(0x55));
    }
    end(it);
}

Test(survivors, the_least_of_one_rank_is_that_of_all)
{
    world *it = new_world(4, 2, 5);
    it->ranks[3].dies = 0;
    it->ranks[1].least = 4;
    run(it);
    for (int r = 0; r < 3; r++)
        cr_assert_eq(it->ranks[r].phase, MIMO_SURVIVORS_TOO_FEW, "rank %d", r);
    end(it);
}

/* It was stopped before its first message, and wakes when the others have gone on. */
Test(survivors, a_rank_that_wakes_is_out)
{
    world *it = new_world(4, 3, 6);
    it->ranks[0].stops = 0;
    it->ranks[0].wakes = 10 * LIMIT;
    run(it);
    cr_assert_eq(it->ranks[0].phase, MIMO_SURVIVORS_OUT);
    cr_assert_eq(it->ranks[0].rule->members[0], UINT64_C(0xe));
    cr_assert_eq(expect_one_decision(it, 6), 3);
    end(it);
}

/* Each rank dies amid each of its messages. */
Test(survivors, a_second_death_at_each_message)
{
    for (int victim = 0; victim < 5; victim++) {
        for (int message = 1; message < 24; message++) {
            world *it = new_world(6, 4, (uint64_t)message);
            it->ranks[5].dies = 0;
            it->ranks[victim].dies_in_send = message;
            run(it);
            int going = expect_one_decision(it, (uint64_t)message);
            bool said_so = it->ranks[victim].dead && it->ranks[victim].ready;
            cr_assert(going == 4 || going == 5 || said_so, "victim %d, message %d: %d go on",
                      victim, message, going);
            end(it);
        }
    }
}

/* ------------------------------ one rank, and what it is told ------------------------------ */

typedef struct told {
    mimo_survivors_rule *rule; /* of rank 2 of 3 */
    int sent[MIMO_SURVIVORS_READY + 1];
} told;

static void count_sent(void *context, int to, const mimo_survivors_message *message)
{
    (void)to;
    ((told *)context)->sent[message->kind]++;
}

static void tell(told *it, mimo_survivors_kind kind, int from, int64_t round, uint64_t members)
{
    const mimo_survivors_mail mail = {count_sent, it};
    mimo_survivors_message *message;
    SUCCEEDS(mimo_reserve(&message, mimo_survivors_message_bytes(3), 1));
    message->kind = (int32_t)kind;
    message->from = from;
    message->round = round;
    message->least = 2;
    message->members[0] = members;
    mimo_survivors_receive(it->rule, 1, message, &mail);
    mimo_release(message);
}

static void begin_telling(told *it)
{
    const mimo_survivors_mail mail = {count_sent, it};
    memset(it, 0, sizeof *it);
    SUCCEEDS(mimo_survivors_rule_create(&it->rule, 2, 3));
    mimo_survivors_begin(it->rule, 1, LIMIT, 2, &mail);
}

static mimo_survivors_phase step_at(told *it, int64_t now)
{
    const mimo_survivors_mail mail = {count_sent, it};
    return mimo_survivors_step(it->rule, now, &mail);
}

/* Ranks that have not heard of each other both propose. */
Test(survivors, one_proposal_is_accepted_in_a_round)
{
    told it;
    begin_telling(&it);
    tell(&it, MIMO_SURVIVORS_PROPOSE, 0, 1, 5);
    tell(&it, MIMO_SURVIVORS_PROPOSE, 1, 1, 6);
    cr_assert_eq(it.sent[MIMO_SURVIVORS_ACCEPT], 1);
    tell(&it, MIMO_SURVIVORS_COMMIT, 1, 1, 6);
    cr_assert_eq(step_at(&it, 2), MIMO_SURVIVORS_ACCEPTED);
    tell(&it, MIMO_SURVIVORS_READY, 1, 1, 6);
    cr_assert_eq(step_at(&it, 3), MIMO_SURVIVORS_ACCEPTED);
    tell(&it, MIMO_SURVIVORS_COMMIT, 0, 1, 5);
    cr_assert_eq(step_at(&it, 4), MIMO_SURVIVORS_COMMITTED);
    tell(&it, MIMO_SURVIVORS_READY, 0, 1, 5);
    cr_assert_eq(step_at(&it, 5), MIMO_SURVIVORS_GO);
    cr_assert_eq(it.rule->members[0], 5);
    mimo_survivors_rule_destroy(it.rule);
}

/* A round that left this rank out has failed meanwhile: it takes part in the next one. */
Test(survivors, a_failed_round_leaves_nobody_out)
{
    told it;
    begin_telling(&it);
    tell(&it, MIMO_SURVIVORS_READY, 0, 1, 3);
    tell(&it, MIMO_SURVIVORS_HERE, 0, 2, 0);
    cr_assert_eq(step_at(&it, 2), MIMO_SURVIVORS_GATHERING);
    cr_assert_eq(it.rule->round, 2);
    tell(&it, MIMO_SURVIVORS_READY, 1, 2, 3);
    cr_assert_eq(step_at(&it, 3), MIMO_SURVIVORS_OUT);
    mimo_survivors_rule_destroy(it.rule);
}

/* A rank that was stopped after it had accepted does not hold the others to it. */
Test(survivors, no_rank_is_ready_too_late)
{
    told it;
    begin_telling(&it);
    tell(&it, MIMO_SURVIVORS_PROPOSE, 0, 1, 5);
    tell(&it, MIMO_SURVIVORS_COMMIT, 0, 1, 5);
    cr_assert_eq(step_at(&it, 2 + LIMIT / 4), MIMO_SURVIVORS_GIVEN_UP);
    cr_assert_eq(it.sent[MIMO_SURVIVORS_READY], 0);
    mimo_survivors_rule_destroy(it.rule);
}

/* A rank that was stopped amid its word, when it had that of all others: they have given up. */
Test(survivors, nobody_goes_on_behind_an_old_word)
{
    told it;
    begin_telling(&it);
    tell(&it, MIMO_SURVIVORS_PROPOSE, 0, 1, 5);
    tell(&it, MIMO_SURVIVORS_READY, 0, 1, 5);
    cr_assert_eq(step_at(&it, 2), MIMO_SURVIVORS_COMMITTED);
    tell(&it, MIMO_SURVIVORS_HERE, 0, 2, 0);
    cr_assert_eq(step_at(&it, 3), MIMO_SURVIVORS_GIVEN_UP);
    mimo_survivors_rule_destroy(it.rule);
}

/* -------------------------------------- anything ----------------------------------- */

static void trouble(world *it)
{
    for (int r = 0; r < it->size; r++) {
        virtual_rank *me = &it->ranks[r];
        switch (draw(it, 5)) {
        case 0:
            me->dies = (int64_t)draw(it, 600);
            break;
        case 1:
            me->dies_in_send = 1 + (int)draw(it, 40);
            break;
        case 2:
            me->stops = (int64_t)draw(it, 600);
            me->wakes = me->stops + (int64_t)draw(it, 3 * LIMIT);
            break;
        case 3:
            me->begins += (int64_t)draw(it, LIMIT);
            break;
        default:
            break;
        }
    }
}

Test(survivors, one_decision_at_most_whatever_happens)
{
    int decided = 0, out = 0, broken = 0;
    for (uint64_t seed = 0; seed < 1500; seed++) {
        int size = 2 + (int)(seed % (MOST - 1));
        world *it = new_world(size, size / 2 + 1, seed);
        it->on_one_host = seed / 8 % 2;
        trouble(it);
        run(it);
        decided += expect_one_decision(it, seed) > 0;
        for (int r = 0; r < size; r++) {
            out += it->ranks[r].phase == MIMO_SURVIVORS_OUT;
            broken += it->ranks[r].dead && it->ranks[r].ready;
        }
        end(it);
    }
    cr_assert_gt(decided, 500);
    cr_assert_gt(out, 50);
    cr_assert_gt(broken, 10);
}

Test(survivors, sets_of_more_ranks_than_a_word_has)
{
    uint64_t set[2] = {0, 0};
    mimo_ranks_add(set, 3);
    mimo_ranks_add(set, 64);
    cr_assert(mimo_ranks_have(set, 3) && mimo_ranks_have(set, 64) && !mimo_ranks_have(set, 0));
    cr_assert_eq(mimo_ranks_count(set, 2), 2);
    cr_assert_gt(mimo_survivors_message_bytes(65), mimo_survivors_message_bytes(64));
}
