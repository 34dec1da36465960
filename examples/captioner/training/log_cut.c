#include "captioner/training/log_cut.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "train/support/atomic_file.h"
#include "train/support/train_support.h"
#include "train/support/input_file.h"

enum { BLOCK = 1 << 16 };

/* The step of a line, or the first of the run that begins with it; -1: no line of a log. */
static int64_t step_of(const char *line)
{
    static const char *const starts[] = {"{\"step\":", "{\"first_step\":"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        size_t length = strlen(starts[i]);
        if (strncmp(line, starts[i], length) == 0)
            return strtoll(line + length, NULL, 10);
    }
    return -1;
}

/* *end is where the first line begins that shall go, or the end. */
static mimo_status find_end(int64_t *end, FILE *file, const char *path, int64_t last)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int64_t at = 0, number = 1;
    mimo_status status = MIMO_OK;
    for (; (length = getline(&line, &room, file)) > 0; at += length, number++) {
        bool whole = line[length - 1] == '\n';
        int64_t step = step_of(line);
        if (whole && step < 0)
            status = mimo_fail(MIMO_ERR_IO,
                               "%s is no log that a run could go on with: line %" PRId64
                               " is none of the captioner's",
                               path, number);
        if (!whole || step < 0 || step > last)
            break;
    }
    free(line);
    TRY(status);
    CHECK(!ferror(file), MIMO_ERR_IO, "cannot read the log %s: %s", path, strerror(errno));
    *end = at;
    return MIMO_OK;
}

mimo_status log_cut_after(const char *path, int64_t last)
{
    struct stat found;
    FILE *file;
    int64_t end = 0;
    if (stat(path, &found) != 0 || !S_ISREG(found.st_mode))
        return MIMO_OK;
    TRY(input_file_stream(&file, path, "the log ", ""));
    mimo_status status = find_end(&end, file, path, last);
    fclose(file);
    TRY(status);
    CHECK(end == found.st_size || truncate(path, (off_t)end) == 0, MIMO_ERR_IO,
          "cannot cut the log %s to %" PRId64 " bytes: %s", path, end, strerror(errno));
    return MIMO_OK;
}

/* The first `end` bytes of the log. */
static mimo_status copy_lines(struct atomic_file *out, FILE *file, const char *path, int64_t end)
{
    char block[BLOCK];
    CHECK(fseeko(file, 0, SEEK_SET) == 0, MIMO_ERR_IO, "cannot read the log %s: %s", path,
          strerror(errno));
    for (int64_t left = end; left > 0;) {
        size_t most = left < BLOCK ? (size_t)left : BLOCK, got = fread(block, 1, most, file);
        CHECK(got > 0, MIMO_ERR_IO,
              "the log %s got shorter: %" PRId64 " of %" PRId64 " bytes are gone", path, left, end);
        TRY(atomic_file_write(out, block, got));
        left -= (int64_t)got;
    }
    return MIMO_OK;
}

/* A log that is not there has no lines to be kept. */
static mimo_status keep_lines(struct atomic_file *out, const char *path, int64_t last)
{
    struct stat found;
    FILE *file;
    int64_t end = 0;
    if (last == 0 || stat(path, &found) != 0)
        return MIMO_OK;
    TRY(input_file_stream(&file, path, "the log ", ""));
    mimo_status status = find_end(&end, file, path, last);
    if (status == MIMO_OK)
        status = copy_lines(out, file, path, end);
    fclose(file);
    return status;
}

mimo_status log_replace_after(int *fd, const char *path, int64_t last)
{
    struct atomic_file file = ATOMIC_FILE_INIT;
    TRY(atomic_file_open(&file, path));
    mimo_status status = keep_lines(&file, path, last);
    if (status == MIMO_OK)
        status = atomic_file_publish(fd, &file);
    atomic_file_discard(&file);
    return status;
}
