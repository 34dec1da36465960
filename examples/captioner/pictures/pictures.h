/*
 * The two pictures of a run, as PNG files: a contact sheet of held-out emoji with what the model
 * calls them, and the loss curve. Drawing is the module captioner-pictures (cairo), loaded for as
 * long as it takes: where it is missing the answer is MIMO_ERR_UNSUPPORTED with a sentence.
 */
#ifndef CAPTIONER_PICTURES_H
#define CAPTIONER_PICTURES_H

#include <stdint.h>

#include <mimo/status.h>

/* One picture of the sheet. Texts may hold any bytes; what is no printable UTF-8 shows as
 * U+FFFD. */
struct contact_cell {
    const uint8_t *image; /* [image_size, image_size, 3] RGB */
    const char *name;
    const char *generated;
    const char *base; /* what the model said before its adapters; NULL: not shown */
};

struct contact_sheet {
    const char *title;    /* NULL: none */
    const char *subtitle; /* NULL: none */
    int image_size;
    int count;
    const struct contact_cell *cells;
    const char *note; /* below the subtitle; NULL: none */
};

/* A level to draw across the curve: "held out, right images", 1.83. */
struct loss_level {
    const char *label;
    double loss;
};

/* How often a router chose each of its experts. */
struct expert_bars {
    char label[32];
    int64_t experts;
    const int64_t *counts; /* [experts] */
};

struct loss_curve {
    const char *title;    /* NULL: none */
    const char *subtitle; /* NULL: none */
    int64_t first_step;   /* the step of loss[0]; more than 1 in a resumed run */
    int64_t count;
    const double *loss; /* of each training step; not finite or past 1e9: left out */
    int level_count;
    const struct loss_level *levels;
    int bar_count; /* of mixtures, beside the curve; 0: none, and the curve has all of the width */
    const struct expert_bars *bars;
    const double *held_out; /* [count] loss of samples that are not trained on; not finite where
                               nobody looked; NULL: nobody ever did */
};

/**
 * Write a picture into `path`, whole or not at all. `module_folder` is where captioner-pictures.so
 * lies; NULL: see plugin.h.
 *
 * Errors: MIMO_ERR_ARGUMENT (no cells, no steps, an image size below 1), MIMO_ERR_UNSUPPORTED (no
 * module, or a library of its is absent), MIMO_ERR_IO, MIMO_ERR_MEMORY.
 */
mimo_status picture_contact_sheet(const char *path, const struct contact_sheet *sheet,
                                  const char *module_folder);
mimo_status picture_loss_curve(const char *path, const struct loss_curve *curve,
                               const char *module_folder);

/** Whether a picture could be written into `path` now: MIMO_ERR_UNSUPPORTED or MIMO_ERR_IO as
 *  above. Leaves nothing behind. */
mimo_status picture_probe(const char *path, const char *module_folder);

#endif
