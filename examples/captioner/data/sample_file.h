/*
 * The samples: small images of emoji and their names, in one compact file.
 *
 *   bytes   0..7    "MIMOEMJI"
 *           8..11   version (1)           12..15  image size N
 *          16..23   number of samples     24..31  bytes of the samples
 *          32..39   what they were rendered from, see `source`
 *          40..47   checksum of the 40 bytes before and of the samples
 *   then per sample: a byte held out (0 or 1), a byte name length L (1 to 80), L bytes of UTF-8,
 *   N * N * 3 bytes of RGB, rows from the top. Integers are little-endian.
 */
#ifndef CAPTIONER_SAMPLE_FILE_H
#define CAPTIONER_SAMPLE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/status.h>

#include "train/support/input_file.h"

enum {
    SAMPLE_SMALLEST_IMAGE = 8,
    SAMPLE_LARGEST_IMAGE = 136,
    SAMPLE_NAME_CAPACITY = 80, /* bytes of the longest name */
};

struct samples {
    int64_t count;
    int64_t held_out_count;
    int image_size;  /* N, pixels a side */
    uint64_t source; /* identity of the font and list that they were rendered from; 0: unknown */
    char *names;     /* [count, SAMPLE_NAME_CAPACITY + 1], each terminated */
    uint8_t *name_length;        /* [count], 1 to SAMPLE_NAME_CAPACITY */
    bool *held_out;              /* [count] */
    uint8_t *images;             /* [count, N, N, 3] RGB */
    struct file_content content; /* of the file that they were read from, by its checksum */
};

static inline char *sample_name(const struct samples *samples, int64_t i)
{
    return samples->names + i * (SAMPLE_NAME_CAPACITY + 1);
}

static inline uint8_t *sample_image(const struct samples *samples, int64_t i)
{
    return samples->images + i * samples->image_size * samples->image_size * 3;
}

/** Zeroed room for `count` samples; the caller fills it in and releases it with samples_release.
 *  MIMO_ERR_ARGUMENT where the image size is not SAMPLE_SMALLEST_IMAGE to SAMPLE_LARGEST_IMAGE. */
mimo_status samples_create(struct samples *out, int64_t count, int64_t image_size);

/** Release; zeroed samples are fine. */
void samples_release(struct samples *samples);

/** Write the file, which appears whole or not at all. MIMO_ERR_IO, on a full disk for one. */
mimo_status sample_file_write(const char *path, const struct samples *samples);

/** Read a whole file; the caller releases *out with samples_release. Whatever the bytes are, the
 *  answer is samples that obey this header, or one sentence: MIMO_ERR_NOT_FOUND or MIMO_ERR_IO. */
mimo_status sample_file_read(struct samples *out, const char *path);

#endif
