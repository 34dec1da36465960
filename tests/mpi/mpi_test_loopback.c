/* The routed cases over an executor of the tests (loopback_executor.c): what the bridge asks of an
 * executor is in its table, and a further one is a row. */
#define routed_general loopback
#include "mpi_test_routed_general.c"

/* Before the cases begin: executors.h reads it. */
__attribute__((constructor)) static void use_loopback(void)
{
    setenv("MIMO_TEST_LOOPBACK", "1", 1);
}
