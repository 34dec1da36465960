/*
 * Recent objects: a short list of what was made and may be needed again, the last used first. It is
 * searched from the front. An object that is in use is never released.
 *
 * An entry is the first member of the object that is kept.
 */
#ifndef MIMO_CORE_RECENT_H
#define MIMO_CORE_RECENT_H

#include <stdbool.h>

typedef struct mimo_recent_entry {
    struct mimo_recent_entry *next;
} mimo_recent_entry;

typedef struct mimo_recent {
    mimo_recent_entry *first;
} mimo_recent;

typedef bool (*mimo_recent_test)(const mimo_recent_entry *entry, const void *context);

/* What mimo_recent_trim asks of the objects. */
typedef struct mimo_recent_kind {
    bool (*in_use)(const mimo_recent_entry *entry); /* NULL: none is */
    void (*release)(mimo_recent_entry *entry, void *context);
} mimo_recent_kind;

/* The first entry that passes; NULL where none does. It stays where it is. */
mimo_recent_entry *mimo_recent_find(const mimo_recent *list, mimo_recent_test test,
                                    const void *context);

/* The same, and take it out of the list. */
mimo_recent_entry *mimo_recent_take(mimo_recent *list, mimo_recent_test test, const void *context);

/* Put an entry that is in no list in front. */
void mimo_recent_put(mimo_recent *list, mimo_recent_entry *entry);

/* Release all objects that are not in use, except for the first `kept` of these. */
void mimo_recent_trim(mimo_recent *list, int kept, const mimo_recent_kind *kind, void *context);

/* Release all objects, also those in use. */
void mimo_recent_clear(mimo_recent *list, const mimo_recent_kind *kind, void *context);

#endif
