#include "captioner/captions/augment.h"

#include <string.h>

#include "train/support/train_support.h"

enum {
    SHIFT_OF_SIDE = 16, /* a picture moves by at most this part of its side */
    MOST_INK = 20,      /* of 256 */
};

/* A word of a name whose picture must not be mirrored. */
static const char *const sided[] = {
    "left",   "right",  "clock",   "thirty", "arrow",   "flag",
    "button", "keycap", "letters", "number", "symbols", ", ", /* people in an order */
};

static bool contains(const char *name, int64_t length, const char *word)
{
    int64_t bytes = (int64_t)strlen(word);
    for (int64_t i = 0; i + bytes <= length; i++)
        if (memcmp(name + i, word, (size_t)bytes) == 0)
            return true;
    return false;
}

bool augment_may_flip(const char *name, int64_t length)
{
    for (size_t i = 0; i < sizeof sided / sizeof *sided; i++)
        if (contains(name, length, sided[i]))
            return false;
    return true;
}

/* One of the numbers from -most to most. */
static int around_zero(uint64_t random, int most)
{
    return (int)(random % (uint64_t)(2 * most + 1)) - most;
}

/* What the numbers of one change are for. */
enum draw { RIGHT, DOWN, FLIP, INK };

augmentation augment_choose(unsigned kinds, uint64_t key, int64_t side, const char *name,
                            int64_t length)
{
    augmentation change = {0};
    int most = (int)(side / SHIFT_OF_SIDE);
    if (kinds & AUGMENT_SHIFT) {
        change.right = around_zero(hash_int(key, RIGHT), most);
        change.down = around_zero(hash_int(key, DOWN), most);
    }
    if (kinds & AUGMENT_FLIP)
        change.flip = hash_int(key, FLIP) % 2 && augment_may_flip(name, length);
    for (int c = 0; (kinds & AUGMENT_COLOUR) && c < 3; c++)
        change.ink[c] = around_zero(hash_int(key, INK + c), MOST_INK);
    return change;
}

static float value_of(int pixel, int ink)
{
    int dark = (255 - pixel) * (256 + ink) / 256;
    return (float)(255 - (dark > 255 ? 255 : dark)) / 127.5f - 1.0f;
}

void changed_picture_init(changed_picture *out, const uint8_t *picture, int64_t side,
                          const augmentation *change)
{
    out->picture = picture;
    out->side = side;
    out->change = *change;
    for (int c = 0; c < 3; c++)
        for (int byte = 0; byte < 256; byte++)
            out->values[c][byte] = value_of(byte, change->ink[c]);
}

/* A pixel of the picture as it was; white beside it. */
static const uint8_t *pixel_at(const changed_picture *from, int64_t y, int64_t x)
{
    static const uint8_t white[3] = {255, 255, 255};
    int64_t side = from->side;
    if (y < 0 || y >= side || x < 0 || x >= side)
        return white;
    return from->picture + (y * side + (from->change.flip ? side - 1 - x : x)) * 3;
}

void changed_picture_read(float *values, const changed_picture *from, int64_t row, int64_t column,
                          int64_t count)
{
    int64_t y = row - from->change.down, x = column - from->change.right;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *pixel = pixel_at(from, y, x + i);
        for (int c = 0; c < 3; c++)
            *values++ = from->values[c][pixel[c]];
    }
}
