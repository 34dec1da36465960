/*
 * The emoji and their English names, from unicode-data's emoji-test.txt, and which of them are held
 * out from training.
 *
 * Only fully-qualified emoji are taken (3,655 in Unicode 15.0), in the order of the file. The split
 * is a fixed rule of the names, the same on every machine. A sixteenth of the names, by their hash,
 * are candidates. A candidate is held out if each of its words is also in a name of training:
 * picture and name are then new, the words are not. Most of them are figures that training has in
 * other skin tones. In a list whose candidates mostly have words of their own, all are held out.
 */
#ifndef CAPTIONER_EMOJI_LIST_H
#define CAPTIONER_EMOJI_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/status.h>

#define EMOJI_LIST_DEFAULT_PATH "/usr/share/unicode/emoji/emoji-test.txt"

/* The longest name that a sample may have, in bytes of UTF-8, without the terminator. */
enum { EMOJI_NAME_CAPACITY = 80 };

/* Another number with each change of the split, so that no cache keeps an old one. */
enum { EMOJI_SPLIT = 2 };

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

#endif
