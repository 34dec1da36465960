/* Texts of files on a terminal: core/visible.h, for programs that include no private header. */
#ifndef TRAIN_VISIBLE_TEXT_H
#define TRAIN_VISIBLE_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* Of a sentence (mimo_last_error) whose every byte is an escape. */
enum { VISIBLE_SENTENCE = 4 * 1024 + 1 };

/** Write a text into to[capacity], terminated, as far as there is room: what is no printable
 *  character as an escape, as "\n" or "\x1b". Returns `to`. */
const char *visible_text(char *to, size_t capacity, const char *text);

/** The same onto a stream, whole. */
void visible_print(FILE *stream, const char *text);

#endif
