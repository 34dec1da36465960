#include "core/recent.h"

#include <stddef.h>

mimo_recent_entry *mimo_recent_find(const mimo_recent *list, mimo_recent_test test,
                                    const void *context)
{
    mimo_recent_entry *entry = list->first;
    while (entry && !test(entry, context))
        entry = entry->next;
    return entry;
}

mimo_recent_entry *mimo_recent_take(mimo_recent *list, mimo_recent_test test, const void *context)
{
    mimo_recent_entry **at = &list->first;
    while (*at && !test(*at, context))
        at = &(*at)->next;
    mimo_recent_entry *entry = *at;
    if (entry)
        *at = entry->next;
    return entry;
}

void mimo_recent_put(mimo_recent *list, mimo_recent_entry *entry)
{
    entry->next = list->first;
    list->first = entry;
}

void mimo_recent_trim(mimo_recent *list, int kept, const mimo_recent_kind *kind, void *context)
{
    for (mimo_recent_entry **at = &list->first; *at;) {
        mimo_recent_entry *entry = *at;
        bool stays = (kind->in_use && kind->in_use(entry)) || kept-- > 0;
        if (stays) {
            at = &entry->next;
        } else {
            *at = entry->next;
            kind->release(entry, context);
        }
    }
}

void mimo_recent_clear(mimo_recent *list, const mimo_recent_kind *kind, void *context)
{
    while (list->first) {
        mimo_recent_entry *entry = list->first;
        list->first = entry->next;
        kind->release(entry, context);
    }
}
