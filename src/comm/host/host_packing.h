/* Rows in host memory, packed: one after the other, without gaps. */
#ifndef MIMO_COMM_HOST_PACKING_H
#define MIMO_COMM_HOST_PACKING_H

#include "core/check.h"
#include "core/rows.h"

/* Copy all of rows[count] to `packed`; copy them back from `packed`. */
mimo_status mimo_host_pack(char *packed, const mimo_rows *rows, int64_t count);
mimo_status mimo_host_unpack(const mimo_rows *rows, int64_t count, char *packed);

/* Bytes of all rows[count]. */
int64_t mimo_host_packed_bytes(const mimo_rows *rows, int64_t count);

#endif
