/* A file that is read at any place, for formats that know where their parts lie. */
#ifndef TRAIN_INPUT_FILE_H
#define TRAIN_INPUT_FILE_H

#include <stdint.h>
#include <stdio.h>

#include <mimo/status.h>

struct input_file {
    int fd; /* -1: not open */
    char *path;
    int64_t size; /* bytes */
};

#define INPUT_FILE_INIT \
    {                   \
        .fd = -1        \
    }

/** Open an ordinary file. Local. The caller sets *out to INPUT_FILE_INIT before and calls
 *  input_file_close after, whatever the result. Errors: MIMO_ERR_NOT_FOUND, MIMO_ERR_IO,
 *  MIMO_ERR_MEMORY. */
mimo_status input_file_open(struct input_file *out, const char *path);
void input_file_close(struct input_file *file);

/** Open an ordinary file that is read line by line; the caller closes *out. In its sentences `what`
 *  stands before the path ("the emoji list ", or "") and `hint` at the end. Local. Errors as
 *  above. */
mimo_status input_file_stream(FILE **out, const char *path, const char *what, const char *hint);

/** Give each line of an ordinary file to `take`, without its end, up to the first that it refuses.
 *  Words and errors as above, and those of `take`. */
mimo_status input_file_lines(const char *path, const char *what, const char *hint,
                             mimo_status (*take)(void *context, char *line), void *context);

/** Read `bytes` bytes from byte `at` on. MIMO_ERR_IO, also where the file ends before. */
mimo_status input_file_read(const struct input_file *file, void *to, int64_t bytes, int64_t at);

/** What a file holds: its bytes and a hash of them. Two copies of a file have the same, wherever
 *  they lie. */
struct file_content {
    int64_t bytes;
    uint64_t hash;
};

/** The content of the open file, whatever has its path by now. Reads all of it. MIMO_ERR_IO,
 *  MIMO_ERR_MEMORY. */
mimo_status input_file_content(struct file_content *out, const struct input_file *file);

#endif
