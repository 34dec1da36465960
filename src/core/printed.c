#include "core/printed.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/letters.h"

mimo_status mimo_printed_open(mimo_printed *out, const char *text, int64_t capacity,
                              const char *name)
{
    MIMO_CHECK(capacity >= 0 && (text || capacity == 0), MIMO_ERR_ARGUMENT,
               "%s: text of %" PRId64 " bytes at %p", name, capacity, (const void *)text);
    *out = (mimo_printed){NULL, NULL, 0};
    out->stream = open_memstream(&out->text, &out->length);
    MIMO_CHECK(out->stream, MIMO_ERR_MEMORY, "%s: no memory for a stream", name);
    return MIMO_OK;
}

static void copy(char *text, int64_t capacity, const mimo_printed *printed)
{
    size_t most = (size_t)capacity - 1;
    bool whole = printed->length <= most;
    size_t count = whole ? printed->length : mimo_whole_letters(printed->text, most);
    memcpy(text, printed->text, count);
    text[count] = '\0';
}

mimo_status mimo_printed_close(int64_t *length, char *text, int64_t capacity, mimo_printed *printed,
                               mimo_status status)
{
    bool whole = fclose(printed->stream) == 0;
    if (status == MIMO_OK && !whole)
        status = mimo_fail(MIMO_ERR_MEMORY, "no memory for a text");
    if (status == MIMO_OK && capacity > 0)
        copy(text, capacity, printed);
    if (status == MIMO_OK && length)
        *length = (int64_t)printed->length;
    free(printed->text);
    return status;
}
