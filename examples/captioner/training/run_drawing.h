/* A file of a run's folder that is written as text: drawn into memory, and then put there whole. */
#ifndef CAPTIONER_RUN_DRAWING_H
#define CAPTIONER_RUN_DRAWING_H

#include <stdio.h>

#include <mimo/status.h>

typedef mimo_status run_draw(FILE *stream, const void *context);

/** Whether it could be written now. Leaves nothing behind. Local. MIMO_ERR_IO, MIMO_ERR_ARGUMENT
 *  (the folder's name is too long). */
mimo_status run_drawing_probe(const char *folder, const char *file);

/** Write what `draw` does. Errors: the same, MIMO_ERR_MEMORY, and those of `draw`. */
mimo_status run_drawing_write(const char *folder, const char *file, run_draw *draw,
                              const void *context);

#endif
