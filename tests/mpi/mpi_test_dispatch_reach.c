/* Tiles of experts in a buffer that some ranks do not reach, as if they were on several hosts. */
#include <stdio.h>
#include <string.h>

#include <mimo/log.h>

#include "comm/host/host_buffer.h"
#include "dispatch_bed.h"
#include "test_memory.h"

/* etp, held, top_k, alignment, hidden, dtype, narrow, transport, shared, spare */
static const dispatch_case cases[] = {
    {1, 4, 3, 1, 67, MIMO_F32, false, MIMO_TRANSPORT_ZERO_COPY, true, 4},
    {1, 4, 3, 16, 40, MIMO_BF16, false, MIMO_TRANSPORT_AUTO, true, -1},
    {2, 4, 3, 1, 40, MIMO_F32, false, MIMO_TRANSPORT_ZERO_COPY, true, 0},
    {2, 4, 3, 1, 40, MIMO_F16, true, MIMO_TRANSPORT_P2P, true, 0},
};

enum { CASES = sizeof cases / sizeof cases[0], HOSTS = 3 };

/* The last line that says that rows are sent though zero-copy was chosen, and their number. */
typedef struct fallback {
    int lines;
    char last[256];
} fallback;

static void note_fallback(void *context, mimo_log_level level, const char *text)
{
    fallback *seen = context;
    if (!strstr(text, "zero-copy was chosen"))
        return;
    seen->lines += level == MIMO_LOG_WARNING;
    snprintf(seen->last, sizeof seen->last, "%s", text);
}

/* Rank 0 says it once, with the ranks whose memory it does not reach. */
static void check_fallback(const fallback *seen, const dispatch_case *its, int hosts)
{
    bool named = its->transport == MIMO_TRANSPORT_ZERO_COPY && hosts > 1;
    MPI_EXPECT(seen->lines == (named && mpi_test_rank() == 0), "%d lines: %s", seen->lines,
               seen->last);
    if (seen->lines == 1 && mpi_test_size() == 4)
        MPI_EXPECT(strstr(seen->last, hosts == 2 ? "no memory of ranks 1, 3: rows"
                                                 : "no memory of ranks 1-2: rows"),
                   "%s", seen->last);
}

/* Rows to ranks out of reach are sent: to all, to some, to none, with etp also to one rank of two
 * that get the same. */
MPI_TEST(dispatch_reach, of_several_hosts)
{
    test_shared_end();
    for (int hosts = HOSTS; hosts > 0; hosts--) {
        mimo_split_hosts(hosts);
        for (int i = 0; i < CASES; i++) {
            MPI_EXPECT(dispatch_case_fits(&cases[i], mpi_test_size()), "case %d is left out", i);
            fallback seen = {.lines = 0};
            dispatch_bed bed = dispatch_bed_new(mpi_test_comm(), &cases[i]);
            mimo_log_set(note_fallback, &seen);
            for (uint64_t seed = 1; seed <= 3; seed++) {
                dispatch_bed_set(&bed, seed * 10 + (uint64_t)i);
                dispatch_bed_move_rows(&bed, seed);
                dispatch_bed_combine(&bed, seed);
            }
            mimo_log_set(NULL, NULL);
            check_fallback(&seen, &cases[i], hosts);
            dispatch_bed_free(&bed);
        }
        test_shared_end();
    }
    mimo_split_hosts(1);
}
