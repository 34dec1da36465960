/* Which way to find peers' memory goes with which NCCL. */
#include <criterion/criterion.h>
#include <string.h>

#include "comm/nccl/nccl_versions.h"

typedef struct row {
    int compiled, running;
    bool host_call, device_calls;
    mimo_peer_way way;
} row;

Test(nccl_versions, way)
{
    static const row rows[] = {
        /* what is tested on GPUs: compiled against 2.28.9 and running with it */
        {22809, 22809, false, true, MIMO_PEERS_BY_DEVICE},
        /* another 2.28: the structures of the device API are those of the version compiled from */
        {22809, 22807, false, true, MIMO_PEERS_NOT_FOUND},
        {22807, 22809, false, true, MIMO_PEERS_NOT_FOUND},
        /* newer ones are asked by the function, whatever the library was compiled against */
        {22809, 22907, true, true, MIMO_PEERS_BY_HOST},
        {22809, 23007, true, true, MIMO_PEERS_BY_HOST},
        {22907, 22907, true, true, MIMO_PEERS_BY_HOST},
        {22907, 23007, true, true, MIMO_PEERS_BY_HOST},
        {23007, 22907, true, true, MIMO_PEERS_BY_HOST},
        {22809, 30000, true, true, MIMO_PEERS_BY_HOST},
        /* a newer one without the function (2.29.0 was never tested): the device API never serves
         * it, not even where the numbers agree */
        {22809, 22900, false, true, MIMO_PEERS_NOT_FOUND},
        {22900, 22900, false, true, MIMO_PEERS_NOT_FOUND},
        {23007, 23007, false, true, MIMO_PEERS_NOT_FOUND},
        /* older ones, as PyTorch 2.10 brings */
        {22809, 22705, false, false, MIMO_PEERS_NOT_FOUND},
        {22907, 22705, false, false, MIMO_PEERS_NOT_FOUND},
        {22907, 22809, false, true, MIMO_PEERS_NOT_FOUND},
        {22705, 22705, false, true, MIMO_PEERS_NOT_FOUND},
        /* the right version without the calls, or whose version is not known */
        {22809, 22809, false, false, MIMO_PEERS_NOT_FOUND},
        {22809, 0, true, true, MIMO_PEERS_NOT_FOUND},
        /* a 2.28 that has the function in advance */
        {22809, 22809, true, true, MIMO_PEERS_BY_DEVICE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const mimo_nccl_versions versions = {rows[i].compiled, rows[i].running, rows[i].host_call,
                                             rows[i].device_calls};
        mimo_peer_way way = mimo_nccl_peer_way(&versions);
        cr_expect_eq(way, rows[i].way, "compiled %d, running %d: way %d, not %d", rows[i].compiled,
                     rows[i].running, (int)way, (int)rows[i].way);
    }
}

Test(nccl_versions, words)
{
    char text[160], small[8];
    const mimo_nccl_versions versions = {22809, 22705, false, false};
    mimo_nccl_versions_text(text, sizeof text, &versions);
    cr_expect(strstr(text, "NCCL 2.27.5, which runs,"), "%s", text);
    cr_expect(strstr(text, "compiled against 2.28.9"), "%s", text);
    mimo_nccl_versions_text(small, sizeof small, &versions);
    cr_expect_eq(strlen(small), sizeof small - 1);
}
