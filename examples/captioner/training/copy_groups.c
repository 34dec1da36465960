#include "captioner/training/copy_groups.h"

#include <stdbool.h>

/* The ranks host by host, hosts in the order of their first ranks. */
static void order_by_host(int *order, const uint64_t *hosts, int ranks)
{
    int count = 0;
    for (int first = 0; first < ranks; first++) {
        bool seen = false;
        for (int i = 0; i < count; i++)
            seen = seen || hosts[order[i]] == hosts[first];
        for (int rank = first; !seen && rank < ranks; rank++)
            if (hosts[rank] == hosts[first])
                order[count++] = rank;
    }
}

/* Half of the list apart: a host's ranks stand beside each other. */
void copy_groups_make(int *groups, int *order, const uint64_t *hosts, int ranks)
{
    int half = ranks / 2;
    order_by_host(order, hosts, ranks);
    for (int i = 0; i < ranks; i++)
        groups[order[i]] = half > 0 ? i % half : 0;
}
