/* mimo-plan grid: the dimensions of one grid and its groups along sets of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "grid/dim_set.h"
#include "plan_commands.h"

typedef struct grid_request {
    const char *spec;
    int64_t offset;
    int64_t world;     /* -1: not requested */
    const char **sets; /* sets[nsets], in command line order; has memory for all arguments */
    int nsets;
    bool json;
} grid_request;

/* ---------------------------------------- arguments ----------------------------------------- */

static mimo_status read_dims(void *into, const option_row *row, const char *text)
{
    grid_request *request = into;
    (void)row;
    request->sets[request->nsets++] = text;
    return MIMO_OK;
}

#define OPTION_INTO grid_request

static const option_row rows[] = {
    OPTION_INT("offset", "N", offset, 0, INT64_MAX, "First rank of the grid (0)"),
    OPTION_INT("world", "N", world, 0, INT64_MAX, "Check that the grid fits N ranks"),
    OPTION_OWN("dims", "SET", read_dims,
               "List the groups along a set of dimensions, such as tp or cp,dp; may be repeated"),
    OPTION_FLAG("json", json, "Print JSON"),
};

static mimo_status take(void *into, const char *word)
{
    grid_request *request = into;
    MIMO_CHECK(!request->spec, MIMO_ERR_ARGUMENT, "one grid at a time, and got '%s' and '%s'",
               request->spec, word);
    request->spec = word;
    return MIMO_OK;
}

static mimo_status check_complete(void *into)
{
    const grid_request *request = into;
    MIMO_CHECK(request->spec, MIMO_ERR_ARGUMENT,
               "a grid such as tp=2,cp=2,dp=2 is missing; see 'mimo-plan grid --help'");
    return MIMO_OK;
}

/* ------------------------------------------- JSON ------------------------------------------- */

static bool add_dims(cJSON *document, const mimo_grid *grid)
{
    cJSON *dims = cJSON_AddArrayToObject(document, "dims");
    bool complete = dims;
    for (int i = 0; complete && i < mimo_grid_ndims(grid); i++) {
        mimo_dim dim = mimo_grid_dim(grid, i);
        cJSON *item = cJSON_CreateObject();
        cJSON_AddItemToArray(dims, item);
        complete = cJSON_AddStringToObject(item, "name", dim.name) &&
                   cJSON_AddNumberToObject(item, "size", (double)dim.size);
    }
    return complete;
}

/* {"dims":["tp"],"ranks":[[0,1],...]}. `room` is memory for the ranks of one group. */
static bool add_set(cJSON *groups, const mimo_grid *grid, const char *set, int64_t *room)
{
    int64_t count, size;
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(groups, item);
    cJSON *names = cJSON_AddArrayToObject(item, "dims");
    cJSON *lists = cJSON_AddArrayToObject(item, "ranks");
    bool complete = names && lists;
    for (int i = 0; complete && i < mimo_grid_ndims(grid); i++)
        if (mimo_dim_set_has(set, mimo_grid_dim(grid, i).name))
            complete = cJSON_AddItemToArray(names, cJSON_CreateString(mimo_grid_dim(grid, i).name));
    complete = complete && mimo_grid_group_count(&count, &size, grid, set) == MIMO_OK;
    for (int64_t g = 0; complete && g < count; g++)
        complete = mimo_grid_group_at(room, grid, set, g) == MIMO_OK &&
                   cJSON_AddItemToArray(lists, plan_json_numbers(room, size));
    return complete;
}

static int print_json(const mimo_grid *grid, const grid_request *request, int64_t *room)
{
    cJSON *document = cJSON_CreateObject();
    bool complete =
        cJSON_AddNumberToObject(document, "size", (double)mimo_grid_size(grid)) &&
        cJSON_AddNumberToObject(document, "offset", (double)mimo_grid_rank_offset(grid)) &&
        add_dims(document, grid);
    cJSON *groups = complete ? cJSON_AddArrayToObject(document, "groups") : NULL;
    complete = groups;
    for (int i = 0; complete && i < request->nsets; i++)
        complete = add_set(groups, grid, request->sets[i], room);
    if (!complete) {
        cJSON_Delete(document);
        document = NULL;
    }
    return plan_print_json(document);
}

/* ------------------------------------------- text ------------------------------------------- */

static int digits_of(int64_t number)
{
    return snprintf(NULL, 0, "%" PRId64, number);
}

static void print_dims(const mimo_grid *grid)
{
    int name_width = (int)strlen("dim"), width = digits_of(mimo_grid_size(grid));
    width = width > (int)strlen("stride") ? width : (int)strlen("stride");
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        int length = (int)strlen(mimo_grid_dim(grid, i).name);
        name_width = length > name_width ? length : name_width;
    }
    printf("%-*s  %*s  %*s\n", name_width, "dim", width, "size", width, "stride");
    for (int i = 0; i < mimo_grid_ndims(grid); i++) {
        mimo_dim dim = mimo_grid_dim(grid, i);
        printf("%-*s  %*" PRId64 "  %*" PRId64 "\n", name_width, dim.name, width, dim.size, width,
               mimo_grid_stride(grid, dim.name));
    }
}

static void print_set(const mimo_grid *grid, const char *set, int64_t *room)
{
    int64_t count, size;
    int width = digits_of(mimo_grid_rank_offset(grid) + mimo_grid_size(grid) - 1);
    const char *before = "\ngroups along ";
    if (mimo_grid_group_count(&count, &size, grid, set) != MIMO_OK)
        return;
    for (int i = 0; i < mimo_grid_ndims(grid); i++)
        if (mimo_dim_set_has(set, mimo_grid_dim(grid, i).name)) {
            printf("%s%s", before, mimo_grid_dim(grid, i).name);
            before = ",";
        }
    printf(": %" PRId64 " of %" PRId64 " ranks\n", count, size);
    for (int64_t g = 0; g < count && mimo_grid_group_at(room, grid, set, g) == MIMO_OK; g++) {
        printf("%*" PRId64 ":", digits_of(count - 1) + 2, g);
        for (int64_t i = 0; i < size; i++)
            printf(" %*" PRId64, width, room[i]);
        putchar('\n');
    }
}

static int print_text(const mimo_grid *grid, const grid_request *request, int64_t *room)
{
    int64_t size = mimo_grid_size(grid), first = mimo_grid_rank_offset(grid);
    printf("grid %s: %" PRId64 " ranks, %" PRId64 " to %" PRId64 "\n\n", request->spec, size, first,
           first + size - 1);
    print_dims(grid);
    for (int i = 0; i < request->nsets; i++)
        print_set(grid, request->sets[i], room);
    return 0;
}

/* ----------------------------------------- command ------------------------------------------ */

/* Check everything that can be wrong, before the first byte of output. */
static mimo_status make_grid(mimo_grid **grid, int64_t *largest, const grid_request *request)
{
    mimo_status status = mimo_grid_create_text(grid, request->spec, request->offset);
    if (status == MIMO_OK && request->world >= 0)
        status = mimo_grid_check_world(*grid, request->world);
    *largest = 0;
    for (int i = 0; status == MIMO_OK && i < request->nsets; i++) {
        int64_t size = 0;
        status = mimo_grid_group_count(NULL, &size, *grid, request->sets[i]);
        *largest = size > *largest ? size : *largest;
    }
    return status;
}

static int answer(const grid_request *request)
{
    mimo_grid *grid = NULL;
    int64_t largest, *room = NULL;
    int status;
    if (make_grid(&grid, &largest, request) != MIMO_OK)
        status = plan_fail_library();
    else if (!(room = calloc((size_t)largest + 1, sizeof *room)))
        status = plan_fail("out of memory for a group of %" PRId64 " ranks", largest);
    else
        status = (request->json ? print_json : print_text)(grid, request, room);
    free(room);
    mimo_grid_destroy(grid);
    return status;
}

int plan_grid_command(int argc, char **argv)
{
    static const option_table table = {
        .program = "mimo-plan grid",
        .words = "GRID",
        .about = "Print the dimensions of a grid, fastest first, and its groups.\v"
                 "GRID is written as tp=2,cp=2,pp=1,dp=2. A group along a set of dimensions holds "
                 "the ranks that agree on every other dimension.",
        OPTION_ROWS(rows),
        .take = take,
        .check = check_complete,
    };
    grid_request request = {.world = -1, .sets = calloc((size_t)argc, sizeof *request.sets)};
    if (!request.sets)
        return plan_fail("out of memory for %d arguments", argc);
    int status = plan_parse(&table, argc, argv, &request);
    if (status == 0)
        status = answer(&request);
    free(request.sets);
    return status;
}
