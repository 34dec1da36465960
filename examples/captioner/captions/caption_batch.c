#include "captioner/captions/caption_batch.h"

#include <string.h>

int64_t caption_tokens(int64_t side)
{
    return (side / PATCH) * (side / PATCH);
}

int64_t caption_side(int64_t tokens)
{
    int64_t across = 0;
    while (across * across < tokens)
        across++;
    return across * PATCH;
}

int64_t caption_turn_tokens(const batch_item *turn, int64_t tokens)
{
    return (turn->picture ? tokens : 0) + turn->length + 1;
}

/* ------------------------------------------ pictures ------------------------------------------ */

static int64_t list_pictures(int64_t *positions, const void *of, int64_t sample)
{
    const caption_samples *own = of;
    int64_t count = 0, position = 0;
    for (const batch_item *turn = &own->items[sample]; turn; turn = turn->next) {
        if (turn->picture)
            positions[count++] = position;
        position += caption_turn_tokens(turn, own->tokens);
    }
    return count;
}

static const batch_item *turn_with_picture(const batch_item *turn, int64_t number)
{
    while (turn->next && (!turn->picture || number > 0)) {
        number -= turn->picture != NULL;
        turn = turn->next;
    }
    return turn;
}

/* Patch p of a picture as one row of values. */
static void cut_patch(float *row, const changed_picture *from, int64_t p)
{
    int64_t across = from->side / PATCH;
    int64_t y0 = p / across * PATCH, x0 = p % across * PATCH;
    for (int64_t y = 0; y < PATCH; y++)
        changed_picture_read(row + y * PATCH * 3, from, y0 + y, x0, PATCH);
}

static void read_picture(float *rows, int64_t stride, const void *of, picture_number picture)
{
    const caption_samples *own = of;
    const batch_item *turn = turn_with_picture(&own->items[picture.sample], picture.number);
    changed_picture from;
    changed_picture_init(&from, turn->picture, caption_side(own->tokens), &turn->change);
    for (int64_t p = 0; p < own->tokens; p++)
        if (turn->picture)
            cut_patch(rows + p * stride, &from, p);
        else
            memset(rows + p * stride, 0, PATCH_VALUES * sizeof *rows);
}

/* ------------------------------------------ sentences ----------------------------------------- */

/* Where in its sample a sentence is being read. */
typedef struct sentence_place {
    const batch_item *turn; /* NULL: in the padding */
    int64_t at;             /* token of the turn */
} sentence_place;

/* The next token of a sentence. */
static int64_t read_token(const caption_samples *own, sentence_place *place)
{
    const batch_item *turn = place->turn;
    if (!turn)
        return TOKEN_PAD;
    int64_t images = turn->picture || own->most_images == 0 ? own->tokens : 0;
    int64_t letter = place->at++ - images;
    if (letter < 0)
        return TOKEN_IMAGE;
    if (turn->name && letter < turn->length)
        return (unsigned char)turn->name[letter];
    *place = (sentence_place){turn->next, 0};
    return turn->name && !turn->open ? TOKEN_END : TOKEN_PAD;
}

/* Labels are shifted here, on the whole sequence: once cp has split it, the next position may be on
 * another rank. */
static void read_sentence(int64_t *ids, int64_t *labels, const void *of, int64_t sample)
{
    const caption_samples *own = of;
    sentence_place place = {&own->items[sample], 0};
    int64_t next = read_token(own, &place);
    for (int64_t i = 0; i < own->seq; i++) {
        ids[i] = next;
        next = read_token(own, &place);
        labels[i] = next <= TOKEN_END ? next : NN_IGNORE;
    }
}

/* -------------------------------------------- a pass ------------------------------------------ */

model_samples caption_describe(const caption_samples *samples)
{
    return (model_samples){samples, samples->count, list_pictures, read_picture, read_sentence};
}

mimo_status caption_pass_run(model_pass *pass, const batch_item *items, int64_t count)
{
    const model_desc *desc = &pass->model->desc;
    const caption_samples own = {items, count, desc->tokens, desc->seq, desc->most_images};
    const model_samples samples = caption_describe(&own);
    return model_pass_run(pass, &samples);
}
