/* The pictures of a run, in the folder of --out: loss-curve.png and contact-sheet.png. Local: rank
 * 0 draws. */
#ifndef CAPTIONER_RUN_PICTURES_H
#define CAPTIONER_RUN_PICTURES_H

#include "captioner/training/expert_loads.h"
#include "captioner/training/final_report.h"

typedef struct run_pictures {
    const char *folder;
    const final_report *report;
    int64_t image_size;
    const double *losses;   /* of each step of this run */
    const double *held_out; /* the same of held-out samples, NAN after most; NULL: none */
    const expert_loads *loads;
    int64_t count;
    int64_t first_step; /* the step of losses[0], from 1 */
} run_pictures;

/** Whether both could be drawn now: the module that draws is there, the files can be written.
 *  Leaves nothing behind. MIMO_ERR_UNSUPPORTED, MIMO_ERR_IO. */
mimo_status run_pictures_probe(const char *folder);

/** Draw both, and tell `stream` where they are; a run without steps has no curve. */
mimo_status run_pictures_draw(const run_pictures *pictures, FILE *stream);

#endif
