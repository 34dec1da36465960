/* A user's first program: it needs only the installed headers and the library. */
#include <stdio.h>

#include <mimo/mimo.h>
#include <mimo/mpi.h>

int main(int argc, char **argv)
{
    char text[64];
    mimo_grid *grid = NULL;
    mimo_comm *comm = NULL;
    MPI_Init(&argc, &argv);
    if (mimo_comm_create_mpi(&comm, MPI_COMM_WORLD, NULL) ||
        mimo_grid_create_text(&grid, "tp=1,dp=1", 0)) {
        fprintf(stderr, "%s\n", mimo_last_error());
        return 1;
    }
    printf("%d of %s\n", mimo_comm_size(comm), mimo_grid_text(text, sizeof text, grid));
    mimo_grid_destroy(grid);
    mimo_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
