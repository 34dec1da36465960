/* Which ranks keep copies for each other. */
#ifndef CAPTIONER_COPY_GROUPS_H
#define CAPTIONER_COPY_GROUPS_H

#include <stdint.h>

/** Ranks in a group: two, and three in one of them where the number of ranks is odd. */
enum { COPY_GROUP_MOST = 3 };

/**
 * groups[ranks]: the number of each rank's group. hosts[ranks] has equal numbers for ranks of one
 * host. The ranks of a group are on several hosts wherever no host has more than half of all ranks.
 * On one host rank r and rank r + ranks / 2 share a group. `order` is room for [ranks]. Pure.
 */
void copy_groups_make(int *groups, int *order, const uint64_t *hosts, int ranks);

#endif
