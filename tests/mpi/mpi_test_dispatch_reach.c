/* Tiles of experts in a buffer that some ranks do not reach, as if they were on several hosts. */
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

/* Rows to ranks out of reach are sent: to all, to some, to none, with etp also to one rank of two
 * that get the same. */
MPI_TEST(dispatch_reach, of_several_hosts)
{
    test_shared_end();
    for (int hosts = HOSTS; hosts > 0; hosts--) {
        mimo_split_hosts(hosts);
        for (int i = 0; i < CASES; i++) {
            MPI_EXPECT(dispatch_case_fits(&cases[i], mpi_test_size()), "case %d is left out", i);
            dispatch_bed bed = dispatch_bed_new(mpi_test_comm(), &cases[i]);
            for (uint64_t seed = 1; seed <= 3; seed++) {
                dispatch_bed_set(&bed, seed * 10 + (uint64_t)i);
                dispatch_bed_move_rows(&bed, seed);
                dispatch_bed_combine(&bed, seed);
            }
            dispatch_bed_free(&bed);
        }
        test_shared_end();
    }
    mimo_split_hosts(1);
}
