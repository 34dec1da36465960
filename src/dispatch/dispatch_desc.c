#include "dispatch/dispatch_desc.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <mimo/env.h>

#include "comm/agreement.h"
#include "core/checked.h"
#include "core/descriptor.h"
#include "core/hash.h"
#include "dispatch/route/route_map.h"

MIMO_DEFINE_INIT(mimo_dispatch_desc, MIMO_DISPATCH_DESC_INIT)

/* ------------------------------------- reading -------------------------------------- */

static mimo_status read_ctas(mimo_dispatch_desc *desc)
{
    int64_t ctas = desc->ctas;
    if (ctas == 0)
        MIMO_TRY(mimo_env_get(&ctas, MIMO_ENV_CTAS));
    MIMO_CHECK(ctas >= 0 && ctas <= INT_MAX, MIMO_ERR_ARGUMENT,
               "dispatch: %" PRId64 " thread blocks", ctas);
    desc->ctas = (int)ctas;
    return MIMO_OK;
}

static mimo_status check_transport(const mimo_dispatch_desc *desc)
{
    mimo_transport transport = desc->transport;
    MIMO_CHECK(transport == MIMO_TRANSPORT_AUTO || transport == MIMO_TRANSPORT_P2P ||
                   transport == MIMO_TRANSPORT_ZERO_COPY,
               MIMO_ERR_ARGUMENT,
               "dispatch: transport %d, where AUTO, P2P and ZERO_COPY are possible",
               (int)transport);
    return MIMO_OK;
}

static mimo_status check_device_memory(const mimo_dispatch_desc *desc)
{
    MIMO_CHECK(desc->row_bytes >= 0 && desc->tensors >= 0, MIMO_ERR_ARGUMENT,
               "dispatch: row_bytes %" PRId64 ", %" PRId64 " tensors", desc->row_bytes,
               desc->tensors);
    return MIMO_OK;
}

/* The ids of a rank travel as one message. Every route of these sizes has to be possible. */
static mimo_status check_sizes(const mimo_dispatch_desc *desc, const mimo_route_shape *shape)
{
    int64_t ids, bytes, pairs;
    MIMO_CHECK(desc->max_tokens >= 0 && desc->hidden >= 0, MIMO_ERR_ARGUMENT,
               "dispatch: max_tokens %" PRId64 ", hidden %" PRId64, desc->max_tokens, desc->hidden);
    MIMO_TRY(mimo_mul(&ids, desc->max_tokens, desc->top_k));
    MIMO_TRY(mimo_mul(&bytes, ids, (int64_t)sizeof(mimo_route_id)));
    MIMO_CHECK(bytes <= INT_MAX / 2, MIMO_ERR_OVERFLOW,
               "dispatch: %" PRId64 " ids of a rank, more than %d", ids,
               (int)(INT_MAX / 2 / (int)sizeof(mimo_route_id)));
    return mimo_route_most_pairs(&pairs, shape, desc->max_tokens, "dispatch");
}

static mimo_status read_shape(mimo_route_shape *out, const mimo_dispatch_desc *desc,
                              const mimo_comm *comm)
{
    const mimo_routing routing = {.experts = desc->experts,
                                  .top_k = desc->top_k,
                                  .etp = desc->etp,
                                  .alignment = desc->alignment,
                                  .rank_count = comm->size};
    return mimo_route_shape_read(out, &routing, "dispatch");
}

mimo_status mimo_dispatch_request_read(mimo_dispatch_request *out, const mimo_comm *comm,
                                       const mimo_dispatch_desc *desc)
{
    mimo_dispatch_desc read = MIMO_DISPATCH_DESC_INIT;
    MIMO_CHECK(desc, MIMO_ERR_ARGUMENT, "dispatch: desc is NULL");
    MIMO_TRY(mimo_read_descriptor(&read, sizeof read, desc, "dispatch"));
    MIMO_TRY(read_shape(&out->shape, &read, comm));
    MIMO_TRY(check_sizes(&read, &out->shape));
    MIMO_TRY(check_transport(&read));
    MIMO_TRY(check_device_memory(&read));
    MIMO_TRY(mimo_dispatch_choose_executor(&out->executor, comm));
    out->reserves = read.ctas > 0;
    MIMO_TRY(read_ctas(&read));
    MIMO_CHECK(!read.name || *read.name, MIMO_ERR_ARGUMENT,
               "dispatch: the name is empty; without one (NULL) a dispatch has a number");
    out->desc = read;
    return mimo_comm_checks(&out->checks, comm);
}

/* --------------------------------- words and hash ----------------------------------- */

uint64_t mimo_dispatch_hash_name(uint64_t hash, const char *name)
{
    return name ? mimo_hash_bytes(hash, name, strlen(name)) : mimo_hash_int(hash, -1);
}

static uint64_t sign(const mimo_dispatch_request *request)
{
    const mimo_dispatch_desc *desc = &request->desc;
    const int64_t numbers[] = {
        desc->experts,     desc->top_k,     desc->etp,         desc->max_tokens,
        desc->hidden,      desc->alignment, desc->narrow_sums, (int64_t)desc->transport,
        desc->ctas,        request->checks, desc->row_bytes,   desc->tensors,
        desc->buffers_only};
    uint64_t hash = mimo_signature_start(MIMO_CALL_DISPATCH_CREATE);
    hash = mimo_dispatch_hash_name(hash, desc->name);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        hash = mimo_hash_int(hash, numbers[i]);
    return hash;
}

static void describe(char call[MIMO_CALL_TEXT], const mimo_dispatch_desc *desc)
{
    static const char *const transports[] = {[MIMO_TRANSPORT_AUTO] = "",
                                             [MIMO_TRANSPORT_P2P] = ", p2p",
                                             [MIMO_TRANSPORT_ZERO_COPY] = ", zero-copy"};
    char title[MIMO_TITLE_TEXT] = "dispatch";
    if (desc->name)
        mimo_write_title(title, "dispatch", desc->name, 0);
    snprintf(call, MIMO_CALL_TEXT,
             "%s create of %" PRId64 " experts, top_k %" PRId64 ", etp=%" PRId64 ", %" PRId64
             " tokens of %" PRId64 ", alignment %" PRId64 "%s%s",
             title, desc->experts, desc->top_k, desc->etp, desc->max_tokens, desc->hidden,
             desc->alignment, desc->narrow_sums ? ", narrow sums" : "",
             transports[desc->transport]);
    if (desc->ctas > 0)
        mimo_call_append(call, ", %d thread blocks", desc->ctas);
    if (desc->row_bytes > 0)
        mimo_call_append(call, ", rows of %" PRId64 " bytes", desc->row_bytes);
    if (desc->tensors > 0)
        mimo_call_append(call, ", %" PRId64 " tensors", desc->tensors);
    if (desc->buffers_only)
        mimo_call_append(call, ", buffers only");
}

mimo_status mimo_dispatch_request_agree(mimo_comm *comm, mimo_status local,
                                        const mimo_dispatch_request *request)
{
    char call[MIMO_CALL_TEXT] = "dispatch create";
    if (local == MIMO_OK)
        describe(call, &request->desc);
    const mimo_claim claim = {
        .kind = MIMO_AGREE_CREATE, .local = local, .signature = sign(request), .call = call};
    return mimo_agree_on(comm, &claim);
}
