/*
 * Names in another language for the emoji of a list, from a text file: on each line the code points
 * of one emoji in hexadecimal, a tab, and its name in UTF-8.
 *
 *   1F431<TAB>Katzengesicht
 *   2764 FE0F<TAB>rotes Herz
 *
 * Empty lines and lines that begin with '#' are passed over. The variation selector U+FE0F does not
 * count when emoji are compared: some sources write it and some do not.
 */
#ifndef CAPTIONER_EMOJI_NAMES_H
#define CAPTIONER_EMOJI_NAMES_H

#include <stdint.h>

#include "captioner/data/emoji_list.h"

/* How many emoji lost their place in the list, and why. */
struct emoji_left_out {
    int64_t unnamed;  /* the file has no name for them */
    int64_t too_long; /* theirs has more than EMOJI_NAME_CAPACITY bytes */
};

/* Give the emoji of a list the names of the file at `path`. Emoji without a usable name leave the
 * list, and *left_out counts them. The others keep their order and their side of the split, which
 * the English names have made: both languages hold out the same emoji.
 *
 * A file that is missing (MIMO_ERR_NOT_FOUND), has a line that is not as above, names an emoji
 * twice, or leaves no emoji in the list (MIMO_ERR_IO) gives one sentence with the path and, where
 * there is one, the line. The list and *left_out are then untouched. */
mimo_status emoji_list_rename(struct emoji_left_out *left_out, struct emoji_list *list,
                              const char *path);

#endif
