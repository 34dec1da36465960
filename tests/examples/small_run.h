/* A captioner of a few parameters on two ranks, for tests that go through its parts one by one. */
#ifndef TESTS_SMALL_RUN_H
#define TESTS_SMALL_RUN_H

#include "captioner/training/caption_data.h"
#include "captioner/training/lora_setup.h"
#include "captioner/training/train_step.h"

enum { SMALL_SIDE = 8, SMALL_SAMPLES = 9, SMALL_HELD_OUT = 3, SMALL_SEQ = 4 };

typedef struct small_run {
    struct options options;
    mimo_comm *world;
    rank_topology topology;
    lora_setup lora;
    caption_data data;
    bridged_model model;
    step_trainer trainer;
} small_run;

/** What a run needs beside files. */
struct options small_options(void);

/** Pictures of one colour each, named by a letter; `shade` is that of the second one. Local. */
mimo_status small_samples_write(const char *path, int shade);

/** From the options to a trainer. Collective. The caller sets options and world before, and calls
 *  small_run_end after, whatever the result. */
mimo_status small_run_build(small_run *run);
void small_run_end(small_run *run);

#endif
