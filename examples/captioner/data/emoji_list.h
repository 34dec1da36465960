/*
 * The emoji and their English names, from unicode-data's emoji-test.txt, and which of them are held
 * out from training.
 *
 * Only fully-qualified emoji are taken (3,655 in Unicode 15.0), in the order of the file. The split
 * is a fixed rule of the base name alone: the name without its skin tones ("woman: dark skin tone,
 * red hair" -> "woman: red hair"), so every skin-tone variant of an emoji lies on the same side, on
 * every machine, whatever else the list holds.
 */
#ifndef CAPTIONER_EMOJI_LIST_H
#define CAPTIONER_EMOJI_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/status.h>

#define EMOJI_LIST_DEFAULT_PATH "/usr/share/unicode/emoji/emoji-test.txt"

/* The longest name that a sample may have, in bytes of UTF-8, without the terminator. */
enum { EMOJI_NAME_CAPACITY = 80 };

struct emoji {
    char name[EMOJI_NAME_CAPACITY + 1]; /* UTF-8 */
    bool held_out;
    int32_t code_count;    /* >= 1 */
    const uint32_t *codes; /* code_count code points, owned by the list */
};

struct emoji_list {
    int64_t count;
    struct emoji *emoji;
    uint32_t *codes; /* all code points, one emoji after another */
};

/* Read the list; the caller releases *out with emoji_list_release. A file that is missing
 * (MIMO_ERR_NOT_FOUND), cut short, malformed, or without fully-qualified emoji (MIMO_ERR_IO) gives
 * one sentence with the path and, where there is one, the line. */
mimo_status emoji_list_read(struct emoji_list *out, const char *path);

/* Release what a list holds; a zeroed list is fine. */
void emoji_list_release(struct emoji_list *list);

/* The name of an emoji without its skin tones, which the split is made by. `base` has room for
 * EMOJI_NAME_CAPACITY + 1 bytes; `name` is no longer than EMOJI_NAME_CAPACITY. */
void emoji_base_name(char *base, const char *name);

/* Whether the emoji of this name is held out from training: one base name in twenty. */
bool emoji_is_held_out(const char *name);

#endif
