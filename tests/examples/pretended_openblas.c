/* Takes the place of OpenBLAS on a processor that OpenBLAS does not know. */
#include <stdlib.h>

#include <cblas.h>

char *openblas_get_corename(void)
{
    static char fallback[] = "Prescott";
    char *asked = getenv("OPENBLAS_CORETYPE");
    return asked ? asked : fallback;
}
