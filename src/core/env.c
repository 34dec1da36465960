#include <errno.h>
#include <stdlib.h>

#include <mimo/env.h>

#include "core/check.h"

static const mimo_env_row table[] = {
#define ROW(id, name, value, help) {name, value, help},
    MIMO_ENV_LIST(ROW)
#undef ROW
};

const mimo_env_row *mimo_env_table(int *count)
{
    *count = (int)(sizeof table / sizeof table[0]);
    return table;
}

mimo_status mimo_env_get(mimo_env_id id, int64_t *out)
{
    const mimo_env_row *row = &table[id];
    const char *text = getenv(row->name);
    if (!text) {
        *out = row->value;
        return MIMO_OK;
    }
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    MIMO_CHECK(*text && *end == '\0' && errno == 0, MIMO_ERR_ARGUMENT,
               "environment %s='%s' is not a whole number", row->name, text);
    *out = value;
    return MIMO_OK;
}
