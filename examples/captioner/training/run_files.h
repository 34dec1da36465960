/* What a run leaves in the folder of --out. Rank 0 writes them. */
#ifndef CAPTIONER_RUN_FILES_H
#define CAPTIONER_RUN_FILES_H

#include <stdio.h>

#include "train/support/train_support.h"

#define RUN_FILE_SHEET "contact-sheet.png"
#define RUN_FILE_CURVE "loss-curve.png"
/* Of a pipeline, or of exchanges under products. */
#define RUN_FILE_PLANNED "schedule.svg"
#define RUN_FILE_RAN "schedule_run.svg"
#define RUN_FILE_EVENTS "schedule_run.json"

enum { RUN_FILE_PATH = 4096 };

/* MIMO_ERR_ARGUMENT where the folder's name is too long. */
static inline mimo_status run_file_path(char path[RUN_FILE_PATH], const char *folder,
                                        const char *file)
{
    int length = snprintf(path, RUN_FILE_PATH, "%s/%s", folder, file);
    CHECK(length > 0 && length < RUN_FILE_PATH, MIMO_ERR_ARGUMENT, "--out is longer than %d bytes",
          RUN_FILE_PATH);
    return MIMO_OK;
}

#endif
