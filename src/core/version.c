#include <mimo/version.h>

int mimo_version(void)
{
    return MIMO_VERSION;
}

const char *mimo_version_text(void)
{
    return MIMO_VERSION_STRING;
}
