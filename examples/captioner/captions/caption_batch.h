/*
 * Pictures and their names as samples of a model.
 *
 * A sentence is  P image tokens | the name's UTF-8 bytes | EOS | padding, S ids in all. Position i
 * predicts token i + 1; the loss counts where that token is a byte of the name or EOS, so the last
 * image token predicts the first byte.
 *
 * Where samples have several pictures, these and their names follow each other as turns, before
 * the padding:  P image tokens | name | EOS | P image tokens | name | EOS ...  A turn without a
 * picture is its name and EOS, of which nothing predicts the first byte.
 */
#ifndef CAPTIONER_CAPTION_BATCH_H
#define CAPTIONER_CAPTION_BATCH_H

#include "captioner/captions/augment.h"
#include "train/model/model_pass.h"

enum {
    TOKEN_END = 256, /* ids below are the bytes of a name */
    TOKEN_PAD = 257,
    TEXT_VOCABULARY = 258, /* ids that are looked up and predicted */
    TOKEN_IMAGE = 258,     /* stands for one row from the encoder; never looked up or predicted */
    /* The vocabulary with room to spare, so that tp divides it. */
    PADDED_VOCABULARY = 288,
    PATCH = 8, /* pixels along the side of a patch, which is one image token */
    PATCH_VALUES = PATCH * PATCH * 3,
};
#define CAPTION_WORDS                                              \
    {                                                              \
        TEXT_VOCABULARY, PADDED_VOCABULARY, TOKEN_IMAGE, TOKEN_PAD \
    }

/** One sample, or a further turn of one. Without a picture it has a blank one, or where samples
 *  have several pictures, none. */
typedef struct batch_item {
    const uint8_t *picture; /* RGB, side x side x 3 */
    const char *name;       /* `length` bytes of UTF-8 */
    int64_t length;
    bool open; /* the name is a beginning: no EOS follows it */
    augmentation change;
    const struct batch_item *next; /* the sample's next turn; NULL: there is none */
} batch_item;

/** Image tokens of a picture with `side` pixels a side, which PATCH divides; and back. */
int64_t caption_tokens(int64_t side);
int64_t caption_side(int64_t tokens);

/** Tokens of a turn, EOS included, where samples have several pictures of `tokens` tokens each. */
int64_t caption_turn_tokens(const batch_item *turn, int64_t tokens);

/** Items as samples of a model. */
typedef struct caption_samples {
    const batch_item *items; /* borrowed */
    int64_t count;
    int64_t tokens, seq; /* P of a picture; S */
    int64_t most_images; /* pictures of a sample; 0: each has one */
} caption_samples;

/** What a model asks of them; *samples is borrowed. */
model_samples caption_describe(const caption_samples *samples);

/** model_pass_run over items[count]. */
mimo_status caption_pass_run(model_pass *pass, const batch_item *items, int64_t count);

#endif
