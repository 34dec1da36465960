/*
 * The order in which a rank goes through its peers: from the first peer above itself on, and around
 * the end of the list. So the ranks of a call do not all begin with the same peer.
 */
#ifndef MIMO_COMM_PEER_ORDER_H
#define MIMO_COMM_PEER_ORDER_H

#include <stddef.h>
#include <string.h>

/* Where in list[count] a rank begins. The elements have `size` bytes, each begins with its peer (an
 * int), and peers ascend; the rank itself is not among them. `count` stands for 0. */
static inline int mimo_first_peer(int rank, const void *list, int count, size_t size)
{
    const char *element = list;
    for (int first = 0; first < count; first++, element += size) {
        int peer;
        memcpy(&peer, element, sizeof peer);
        if (peer > rank)
            return first;
    }
    return count;
}

#endif
