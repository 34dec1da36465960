/* The choice between candidates by their times, and the list of recent objects. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "core/fastest.h"
#include "core/recent.h"

/* ----------------------------------------- fastest ------------------------------------------ */

enum { REPEATS = MIMO_FASTEST_REPEATS };

/* All repeats take `usual` nanoseconds, except the first `others`, which take `other`. */
static void fill(uint64_t times[REPEATS], uint64_t usual, int others, uint64_t other)
{
    for (int i = 0; i < REPEATS; i++)
        times[i] = i < others ? other : usual;
}

static int choose(const uint64_t kept[REPEATS], const uint64_t challenger[REPEATS])
{
    const mimo_fastest_times times[] = {kept, challenger};
    return mimo_fastest_of(times, 2);
}

Test(fastest, keeps_the_first_of_equals)
{
    uint64_t kept[REPEATS], challenger[REPEATS];
    fill(kept, 1000, 0, 0);
    fill(challenger, 1000, 0, 0);
    cr_assert_eq(choose(kept, challenger), 0);
}

/* 3 percent is no margin. A little more is. */
Test(fastest, asks_for_a_margin)
{
    uint64_t kept[REPEATS], challenger[REPEATS];
    fill(kept, 1000, 0, 0);
    fill(challenger, 970, 0, 0);
    cr_assert_eq(choose(kept, challenger), 0);
    fill(challenger, 969, 0, 0);
    cr_assert_eq(choose(kept, challenger), 1);
}

/* A few lucky repeats do not decide: 9 of 15 wins are too few, 10 are enough. */
Test(fastest, asks_for_wins)
{
    uint64_t kept[REPEATS], challenger[REPEATS];
    fill(kept, 1000, 0, 0);
    fill(challenger, 500, REPEATS - MIMO_FASTEST_WINS + 1, 2000);
    cr_assert_eq(choose(kept, challenger), 0);
    fill(challenger, 500, REPEATS - MIMO_FASTEST_WINS, 2000);
    cr_assert_eq(choose(kept, challenger), 1);
}

/* Disturbed repeats do not make the kept candidate lose: its best time counts. */
Test(fastest, forgives_disturbances)
{
    uint64_t kept[REPEATS], challenger[REPEATS];
    fill(kept, 1000, REPEATS - 1, 5000);
    fill(challenger, 990, 0, 0);
    cr_assert_eq(choose(kept, challenger), 0);
}

Test(fastest, skips_what_was_not_measured_and_compares_with_the_best_so_far)
{
    uint64_t a[REPEATS], b[REPEATS], c[REPEATS];
    fill(a, 1000, 0, 0);
    fill(b, 800, 0, 0);
    fill(c, 790, 0, 0);
    cr_assert_eq(mimo_fastest_of((const mimo_fastest_times[]){a, NULL, c}, 3), 2);
    cr_assert_eq(mimo_fastest_of((const mimo_fastest_times[]){a, b, c}, 3), 1);
    cr_assert_eq(mimo_fastest_of((const mimo_fastest_times[]){a, NULL, NULL}, 3), 0);
}

/* ------------------------------------------ recent ------------------------------------------ */

typedef struct object {
    mimo_recent_entry entry;
    int number;
    bool used, released;
} object;

static bool has_number(const mimo_recent_entry *entry, const void *number)
{
    return ((const object *)entry)->number == *(const int *)number;
}

static bool is_used(const mimo_recent_entry *entry)
{
    return ((const object *)entry)->used;
}

static void release(mimo_recent_entry *entry, void *count)
{
    ((object *)entry)->released = true;
    ++*(int *)count;
}

static const mimo_recent_kind kind = {is_used, release};

static void put_all(mimo_recent *list, object *objects, int count)
{
    for (int i = 0; i < count; i++) {
        objects[i] = (object){.number = i};
        mimo_recent_put(list, &objects[i].entry);
    }
}

Test(recent, finds_and_takes)
{
    object objects[3];
    mimo_recent list = {NULL};
    int two = 1, none = 7;
    put_all(&list, objects, 3);
    cr_assert_eq(list.first, &objects[2].entry);
    cr_assert_eq(mimo_recent_find(&list, has_number, &two), &objects[1].entry);
    cr_assert_eq(mimo_recent_find(&list, has_number, &none), NULL);
    cr_assert_eq(mimo_recent_take(&list, has_number, &two), &objects[1].entry);
    cr_assert_eq(mimo_recent_take(&list, has_number, &two), NULL);
    cr_assert_eq(objects[2].entry.next, &objects[0].entry);
}

/* The oldest go first. Those in use stay and do not count. */
Test(recent, trims_what_is_not_used)
{
    object objects[5];
    mimo_recent list = {NULL};
    int released = 0;
    put_all(&list, objects, 5);
    objects[0].used = objects[3].used = true;
    mimo_recent_trim(&list, 2, &kind, &released);
    cr_assert_eq(released, 1);
    cr_assert(objects[1].released);
    mimo_recent_trim(&list, 0, &kind, &released);
    cr_assert(!objects[0].released && !objects[3].released && released == 3);
    mimo_recent_clear(&list, &kind, &released);
    cr_assert(released == 5 && !list.first);
}
