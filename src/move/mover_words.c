/* The words of a mover: its title, and the sentences and calls that begin with it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "core/letters.h"
#include "move/mover.h"

void mimo_write_title(char title[MIMO_TITLE_TEXT], const char *kind, const char *name,
                      int64_t number)
{
    static const char quotes[] = " '...'";
    int space = MIMO_TITLE_TEXT - (int)(sizeof quotes + strlen(kind));
    if (!name) {
        snprintf(title, MIMO_TITLE_TEXT, "%s %" PRId64, kind, number);
    } else if (strlen(name) <= (size_t)space) {
        snprintf(title, MIMO_TITLE_TEXT, "%s '%s'", kind, name);
    } else {
        int length = (int)mimo_whole_letters(name, (size_t)space);
        snprintf(title, MIMO_TITLE_TEXT, "%s '%.*s...'", kind, length, name);
    }
}

mimo_status mimo_mover_prefix_error(const mimo_mover *mover, mimo_status status)
{
    const char *title = mover->title;
    if (status == MIMO_OK || mimo_family_status(mover->comm->family) != MIMO_OK ||
        strncmp(mimo_last_error(), title, strlen(title)) == 0)
        return status;
    return mimo_fail_prefix(status, "%s: ", title);
}

void mimo_call_append_list(char call[MIMO_CALL_TEXT], const char *format, va_list arguments)
{
    size_t used = strlen(call), space = MIMO_CALL_TEXT - used;
    mimo_end_with_letter(call + used, space, vsnprintf(call + used, space, format, arguments));
}

void mimo_call_append(char call[MIMO_CALL_TEXT], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    mimo_call_append_list(call, format, arguments);
    va_end(arguments);
}
