/* How far the training is, for a person: a bar that is redrawn in place, or plain lines now and
 * then. Pure text over a stream; time is the caller's, in seconds since the first step began. */
#ifndef CAPTIONER_PROGRESS_H
#define CAPTIONER_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <mimo/status.h>

enum progress_kind {
    PROGRESS_LINES, /* the first step, the last, and about twenty between */
    PROGRESS_BAR,   /* redrawn at most ten times a second */
};

struct progress {
    FILE *stream;
    enum progress_kind kind;
    int64_t first; /* steps done before this run (a resumed one) */
    int64_t last;  /* the last step of this run */
    int64_t every; /* steps from one plain line to the next */
    int columns;   /* of the terminal */
    double drawn;  /* when the bar was last drawn */
    bool open;     /* the bar's line has not been ended */
};

/** PROGRESS_BAR where `stream` is a terminal, PROGRESS_LINES elsewhere. (Under mpirun stderr is a
 *  pipe: whoever starts it on a terminal may ask for the bar.) */
enum progress_kind progress_kind_of(FILE *stream);

/** Begin a run of steps (first, last]. */
void progress_begin(struct progress *progress, FILE *stream, enum progress_kind kind, int64_t first,
                    int64_t last);

/** Step `step` is done, `seconds` after progress_begin. Failures to print are not failures of the
 *  run and are passed over. */
void progress_step(struct progress *progress, int64_t step, double loss, double seconds);

/** A line of its own, printf-like, in the middle of a run; texts of files are made visible. */
MIMO_PRINTF(2, 3) void progress_note(struct progress *progress, const char *format, ...);

/** End the bar's line, so that other text can follow; also in the middle of a run. */
void progress_end(struct progress *progress);

#endif
