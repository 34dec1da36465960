/* A program that contains the public headers only, linked with the library. */
#include <mimo/mimo.h>

#ifndef MIMO_EXPERIMENTAL
/* Experimental declarations are absent: this one would contradict theirs. */
int mimo_log_set;
#endif

int main(void)
{
    mimo_grid *grid = NULL;
    return mimo_grid_create_text(&grid, "tp", 0) == MIMO_ERR_ARGUMENT && mimo_last_error()[0] ? 0
                                                                                              : 1;
}
