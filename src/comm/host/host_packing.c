#include "comm/host/host_packing.h"

#include "device/device.h"

mimo_status mimo_host_pack(char *packed, const mimo_rows *rows, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const mimo_rows at = mimo_rows_packed(packed, &rows[i]);
        MIMO_TRY(mimo_device_host.copy_rows(&at, &rows[i], NULL));
        packed += mimo_rows_bytes(&rows[i]);
    }
    return MIMO_OK;
}

mimo_status mimo_host_unpack(const mimo_rows *rows, int64_t count, char *packed)
{
    for (int64_t i = 0; i < count; i++) {
        const mimo_rows at = mimo_rows_packed(packed, &rows[i]);
        MIMO_TRY(mimo_device_host.copy_rows(&rows[i], &at, NULL));
        packed += mimo_rows_bytes(&rows[i]);
    }
    return MIMO_OK;
}

int64_t mimo_host_packed_bytes(const mimo_rows *rows, int64_t count)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; i++)
        bytes += mimo_rows_bytes(&rows[i]);
    return bytes;
}
