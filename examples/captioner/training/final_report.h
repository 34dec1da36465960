/* What the model has learned, on samples it has never seen: the loss with the right pictures and
 * with shuffled ones, how many names and words are right, and ten names that it writes. */
#ifndef CAPTIONER_FINAL_REPORT_H
#define CAPTIONER_FINAL_REPORT_H

#include <stdio.h>

#include "captioner/captions/accuracy.h"
#include "captioner/captions/generate.h"
#include "captioner/training/caption_data.h"

/* Pictures whose names the model writes; its best guesses at a picture, and the number of names it
 * chooses from. */
enum { REPORT_NAMES = 10, REPORT_GUESSES = 5, REPORT_CHOICE = 60 };

typedef struct final_report {
    double right_loss, shuffled_loss;
    caption_accuracy accuracy;      /* over all held-out samples */
    int64_t known;                  /* held-out names each of whose words training has seen */
    int64_t choice;                 /* names that each picture of `items` was compared with */
    int64_t guessed;                /* of the items: their own name is among the best guesses */
    int64_t count;                  /* names: REPORT_NAMES, or fewer held-out samples */
    batch_item items[REPORT_NAMES]; /* views of the data */
    generated_name names[REPORT_NAMES];
    bool has_base; /* final_report_ask_base was called */
    generated_name base_names[REPORT_NAMES];
} final_report;

/** Have the base name the pictures, for comparison. To be called where the model is still the base:
 *  its weights are read, its adapters are new. The report is zeroed before. Collective. */
mimo_status final_report_ask_base(final_report *out, bridged_model *model,
                                  const caption_data *data);

/** Evaluate and generate; what the base said stays in the report, which is zeroed where it was not
 *  asked. Collective; every rank gets the same report. */
mimo_status final_report_make(final_report *out, bridged_model *model, const caption_data *data);

/** "12 of 196 names are right to the letter, ..." Returns `text`. */
enum { REPORT_SENTENCE = 160 };
const char *final_report_sentence(char text[REPORT_SENTENCE], const final_report *report);

/** How many held-out names have words that training has seen, every one. Returns `text`. */
const char *final_report_known(char text[REPORT_SENTENCE], const final_report *report);

/** Print it for a reader. Local. */
void final_report_print(const final_report *report, FILE *stream);

#endif
