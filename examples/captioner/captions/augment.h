/*
 * Training pictures that are never quite the same twice: shifted, mirrored and tinted.
 *
 * A change is a function of a key, and the key of the seed and the place of the sample in the whole
 * run. So every topology trains on the same pictures, and so does a run that is resumed.
 */
#ifndef CAPTIONER_AUGMENT_H
#define CAPTIONER_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds of changes, to be added up; in the order of AUGMENT_NAMES. */
enum { AUGMENT_SHIFT = 1, AUGMENT_FLIP = 2, AUGMENT_COLOUR = 4 };
#define AUGMENT_NAMES "shift|flip|colour"

/** What becomes of one picture. All zero changes nothing. */
typedef struct augmentation {
    int right, down; /* pixels that the picture moves; white follows */
    bool flip;       /* left and right change places, before that */
    int ink[3];      /* 1/256 of its distance from white that each channel gains */
} augmentation;

/** The change of a sample whose picture has `side` pixels a side. Pure.
 *
 *  A picture is mirrored only where its name stays right. English names tell: those that speak of
 *  sides, of writing, of flags or of several people in order keep their picture as it is. */
augmentation augment_choose(unsigned kinds, uint64_t key, int64_t side, const char *name,
                            int64_t length);

/** Whether the name of a picture is that of its mirror image as well. */
bool augment_may_flip(const char *name, int64_t length);

/** A picture and its change. */
typedef struct changed_picture {
    const uint8_t *picture; /* [side, side, 3]; borrowed */
    int64_t side;
    augmentation change;
    float values[3][256]; /* what the bytes of each channel become: from -1 to 1 */
} changed_picture;

void changed_picture_init(changed_picture *out, const uint8_t *picture, int64_t side,
                          const augmentation *change);

/** The values of `count` pixels of a row, RGB, from a column on. */
void changed_picture_read(float *values, const changed_picture *from, int64_t row, int64_t column,
                          int64_t count);
#endif
