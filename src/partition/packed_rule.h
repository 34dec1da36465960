/* Which lengths of a thd rule count. Pure. */
#ifndef MIMO_PARTITION_PACKED_RULE_H
#define MIMO_PARTITION_PACKED_RULE_H

#include <mimo/partition.h>

/* Whether a rule packs sequences, and its lengths can be read. NULL is no such rule. */
static inline bool mimo_rule_is_packed(const mimo_partition_rule *rule)
{
    return rule && rule->format == MIMO_THD && rule->cu && rule->sequences >= 0;
}

/* The cumulative lengths of a packed rule that drive its split: the padded ones where there are
 * any. */
static inline const int32_t *mimo_rule_lengths(const mimo_partition_rule *rule)
{
    return rule->cu_padded ? rule->cu_padded : rule->cu;
}

/* T of a packed rule. */
static inline int64_t mimo_rule_positions(const mimo_partition_rule *rule)
{
    return mimo_rule_lengths(rule)[rule->sequences];
}

#endif
