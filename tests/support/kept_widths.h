/*
 * Watches in which words the exchanges of a communicator may move rows, by a backend table before
 * the real one. An exchange chooses words when it is created, from alignments. Each time that it is
 * bound, the rows must lie at multiples of these words, and no narrower word may have been chosen
 * than for an exchange that is made now. So a kept call that does not suit its tensors shows on the
 * host as well, where rows may lie at any address.
 */
#ifndef MIMO_TESTS_KEPT_WIDTHS_H
#define MIMO_TESTS_KEPT_WIDTHS_H

#include "comm/comm_backend.h"

/* From here on, until the communicator ends. All that are watched have the same backend. */
void watch_widths(mimo_comm *comm);

/* How often an exchange was bound with bases that it did not have before, since the last look. */
int64_t widths_looked_at(void);

#endif
