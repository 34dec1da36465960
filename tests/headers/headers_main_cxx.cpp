/* The same in C++: the headers declare C linkage. */
#include <mimo/mimo.h>

int main(void)
{
    mimo_grid *grid = nullptr;
    return mimo_grid_create_text(&grid, "tp", 0) == MIMO_ERR_ARGUMENT && mimo_last_error()[0] ? 0 : 1;
}
