/* A folder that all ranks of an MPI test use. */
#ifndef MIMO_TESTS_SHARED_FOLDER_H
#define MIMO_TESTS_SHARED_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

#include "mpi_test.h"

enum { SHARED_FOLDER = 32 /* bytes of its path */ };

/* Rank 0 makes it. Collective. */
static inline void shared_folder_make(char folder[SHARED_FOLDER])
{
    snprintf(folder, SHARED_FOLDER, "/tmp/captioner-XXXXXX");
    if (mpi_test_rank() == 0)
        MPI_EXPECT(mkdtemp(folder), "no folder %s", folder);
    MPI_Bcast(folder, SHARED_FOLDER, MPI_CHAR, 0, MPI_COMM_WORLD);
}

/* It goes with all that is in it, once all ranks are here. Collective. */
static inline void shared_folder_remove(const char *folder)
{
    char text[SHARED_FOLDER + 8];
    snprintf(text, sizeof text, "rm -r %s", folder);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_test_rank() == 0)
        MPI_EXPECT(system(text) == 0, "%s", text);
}

#endif
