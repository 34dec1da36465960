/* Grids from text. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/checked.h"
#include "core/memory.h"
#include "grid/grid_types.h"

/* A dimension as text: "dp=4", or "x=2:copies". */
typedef struct dim_text {
    mimo_dim dim;
    bool copies;
} dim_text;

/* Split "name=size" in place and read the size. False where the text has another form. Where the
 * size does not fit 64 bits, *fits is false and the text stays whole. mimo_grid_create checks the
 * name. */
static bool parse_dim(dim_text *out, bool *fits, char *part)
{
    char *equals = strchr(part, '=');
    if (!equals)
        return false;
    char *digits = equals + 1;
    char *first = digits + (*digits == '-');
    if (*first < '0' || *first > '9') /* strtoll would accept blanks and '+' */
        return false;
    char *end;
    errno = 0;
    long long size = strtoll(digits, &end, 10);
    bool copies = strcmp(end, MIMO_GRID_COPIES) == 0;
    if (*end && !copies)
        return false;
    *fits = errno == 0;
    if (!*fits)
        return true;
    *equals = '\0';
    *out = (dim_text){{part, size}, copies};
    return true;
}

static mimo_status parse_dims(dim_text *dims, int ndims, char *text, const char *spec)
{
    for (int i = 0; i < ndims; i++) {
        size_t length = strcspn(text, ",");
        text[length] = '\0';
        bool fits;
        MIMO_CHECK(parse_dim(&dims[i], &fits, text), MIMO_ERR_ARGUMENT,
                   "part %d of the grid '%s' is '%s', and should be name=size as in 'tp=2,dp=4'",
                   i + 1, spec, text);
        MIMO_CHECK(fits, MIMO_ERR_OVERFLOW,
                   "part %d of the grid '%s' is '%s', a size that does not fit 64 bits", i + 1,
                   spec, text);
        text += length + 1;
    }
    return MIMO_OK;
}

/* A grid of dims[ndims] that were parsed. */
static mimo_status create_parsed(mimo_grid **out, const dim_text *parsed, int ndims, int64_t offset)
{
    mimo_dim *dims;
    mimo_grid *grid = NULL;
    MIMO_TRY(mimo_reserve(&dims, ndims, sizeof *dims));
    for (int i = 0; i < ndims; i++)
        dims[i] = parsed[i].dim;
    mimo_status status = mimo_grid_create(&grid, dims, ndims, offset);
    mimo_release(dims);
    for (int i = 0; i < ndims && status == MIMO_OK; i++)
        if (parsed[i].copies)
            status = mimo_grid_mark_copies(grid, i);
    if (status == MIMO_OK)
        *out = grid;
    else if (grid)
        mimo_grid_release_value(grid);
    return status;
}

/* What is made of a text's dimensions. */
typedef struct parsed_grid {
    mimo_grid **out;
    int64_t offset;
    mimo_grid *base; /* of a view; NULL: a grid of its own */
    const char *name;
} parsed_grid;

static mimo_status create_parsed_view(const parsed_grid *wanted, const dim_text *parsed, int ndims,
                                      const char *spec)
{
    mimo_dim *dims;
    for (int i = 0; i < ndims; i++)
        MIMO_CHECK(!parsed[i].copies, MIMO_ERR_ARGUMENT,
                   "the view '%s': %s" MIMO_GRID_COPIES ": mimo_grid_set_copies says it of a view",
                   spec, parsed[i].dim.name);
    MIMO_TRY(mimo_reserve(&dims, ndims, sizeof *dims));
    for (int i = 0; i < ndims; i++)
        dims[i] = parsed[i].dim;
    mimo_status status =
        mimo_grid_create_view(wanted->out, wanted->base, wanted->name, dims, ndims);
    mimo_release(dims);
    return status;
}

static mimo_status create_from_text(const parsed_grid *wanted, const char *spec)
{
    int ndims = 1;
    for (const char *c = spec; *c; c++)
        ndims += *c == ',';

    dim_text *dims = NULL;
    char *text = NULL;
    mimo_status status;
    MIMO_TRY_GOTO(status, done, mimo_reserve(&dims, ndims, sizeof *dims));
    MIMO_TRY_GOTO(status, done, mimo_copy_string(&text, spec));
    MIMO_TRY_GOTO(status, done, parse_dims(dims, ndims, text, spec));
    status = wanted->base ? create_parsed_view(wanted, dims, ndims, spec)
                          : create_parsed(wanted->out, dims, ndims, wanted->offset);
done:
    mimo_release(text);
    mimo_release(dims);
    return status;
}

mimo_status mimo_grid_create_text(mimo_grid **out, const char *spec, int64_t offset)
{
    MIMO_CHECK(out && spec, MIMO_ERR_ARGUMENT, "mimo_grid_create_text: %s is NULL",
               out ? "spec" : "out");
    return create_from_text(&(parsed_grid){.out = out, .offset = offset}, spec);
}

mimo_status mimo_grid_create_view_text(mimo_grid **out, mimo_grid *base, const char *name,
                                       const char *spec)
{
    MIMO_CHECK(out && base && name && spec, MIMO_ERR_ARGUMENT,
               "mimo_grid_create_view_text: %s is NULL",
               !out ? "out" : (!base ? "base" : (name ? "spec" : "name")));
    return create_from_text(&(parsed_grid){.out = out, .base = base, .name = name}, spec);
}
