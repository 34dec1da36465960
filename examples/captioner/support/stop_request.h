/* SIGTERM and SIGINT as a request to end. The program asks between two steps whether one came, and
 * then ends in good order. A second signal ends the process at once, as ever. */
#ifndef CAPTIONER_STOP_REQUEST_H
#define CAPTIONER_STOP_REQUEST_H

#include <signal.h>

/* What the signals did before. */
struct stop_request {
    struct sigaction before[2];
};

/* Listen from now on, until stop_request_end. One listener at a time in a process. */
void stop_request_begin(struct stop_request *request);
void stop_request_end(const struct stop_request *request);

/* The name of the signal that came since the beginning; NULL: none. */
const char *stop_request_heard(void);

#endif
