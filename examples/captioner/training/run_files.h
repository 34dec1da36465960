/* What a run leaves in the folder of --out. Rank 0 writes them. */
#ifndef CAPTIONER_RUN_FILES_H
#define CAPTIONER_RUN_FILES_H

#define RUN_FILE_SHEET "contact-sheet.png"
#define RUN_FILE_CURVE "loss-curve.png"
/* Of a pipeline, or of exchanges under products. */
#define RUN_FILE_PLANNED "schedule.svg"
#define RUN_FILE_RAN "schedule_run.svg"
#define RUN_FILE_EVENTS "schedule_run.json"

#endif
