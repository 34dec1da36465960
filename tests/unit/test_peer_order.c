/* The position in the list of peers at which a rank begins. */
#include <criterion/criterion.h>

#include "comm/comm_backend.h"
#include "comm/peer_order.h"

static int first_of(int rank, const mimo_message *list, int count)
{
    return mimo_first_peer(rank, list, count, sizeof *list);
}

Test(peer_order, begins_above_the_rank_itself)
{
    const mimo_message list[] = {{.peer = 0}, {.peer = 2}, {.peer = 5}};
    cr_assert_eq(first_of(1, list, 3), 1);
    cr_assert_eq(first_of(3, list, 3), 2);
    cr_assert_eq(first_of(6, list, 3) % 3, 0, "above all peers it begins at the first");
    cr_assert_eq(first_of(4, NULL, 0), 0);
}

/* All ranks talk to all others. At each step no two of them are at the same peer. */
Test(peer_order, spreads_ranks_over_peers)
{
    enum { RANKS = 5 };
    for (int step = 0; step < RANKS - 1; step++) {
        int met[RANKS] = {0};
        for (int rank = 0; rank < RANKS; rank++) {
            mimo_push list[RANKS - 1] = {{0}};
            for (int i = 0; i < RANKS - 1; i++)
                list[i].peer = i < rank ? i : i + 1;
            int first = mimo_first_peer(rank, list, RANKS - 1, sizeof *list);
            met[list[(first + step) % (RANKS - 1)].peer]++;
        }
        for (int peer = 0; peer < RANKS; peer++)
            cr_assert_eq(met[peer], 1, "step %d: %d ranks at peer %d", step, met[peer], peer);
    }
}
