/* The public calls of a recovery: descriptors and checks, then the backend's. */
#include <inttypes.h>

#include <mimo/env.h>

#include "comm/calls.h"
#include "comm/survivors_agree.h"
#include "core/descriptor.h"
#include "core/memory.h"
#include "device/profile.h"

MIMO_DEFINE_INIT(mimo_survivors_desc, MIMO_SURVIVORS_DESC_INIT)

static const char CALL[] = "mimo_comm_survivors"; /* in sentences */

/* Nanoseconds. */
static const int64_t MILLISECOND = 1000000;
static const int64_t LEAST_LIMIT = 10000000000;

/* The caller's descriptor of an ended family. A ring's folder was borrowed at its creation. */
static mimo_comm_desc desc_of(const mimo_comm *ended)
{
    mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
    const mimo_family *family = ended->family;
    desc.agree = family->agree;
    desc.checks = family->checks;
    desc.deadline = mimo_comm_deadline(ended);
    desc.stall = family->stall / MILLISECOND;
    desc.interrupted = family->interrupted;
    desc.context = family->context;
    if (family->ring_ways == MIMO_RING_OFF || family->ring_ways == MIMO_RING_MEMORY)
        desc.ring = family->ring_ways;
    return desc;
}

static mimo_status read_terms(mimo_survivors_terms *out, const mimo_comm *ended,
                              const mimo_survivors_desc *desc)
{
    int64_t limit = 2 * mimo_comm_deadline(ended) * MILLISECOND;
    MIMO_CHECK(desc->least >= 0 && desc->least <= ended->size, MIMO_ERR_ARGUMENT,
               "%s: least %d is not in [0, %d]", CALL, desc->least, ended->size);
    MIMO_CHECK(desc->timeout_ms >= 0 && desc->timeout_ms <= MIMO_DEADLINE_MOST, MIMO_ERR_ARGUMENT,
               "%s: timeout_ms %d is not in [0, %" PRId64 "]", CALL, desc->timeout_ms,
               (int64_t)MIMO_DEADLINE_MOST);
    out->least = desc->least > 0 ? desc->least : ended->size / 2 + 1;
    out->limit = limit > LEAST_LIMIT ? limit : LEAST_LIMIT;
    if (out->limit > MIMO_DEADLINE_MOST * MILLISECOND)
        out->limit = MIMO_DEADLINE_MOST * MILLISECOND;
    if (desc->timeout_ms > 0)
        out->limit = desc->timeout_ms * MILLISECOND;
    out->bootstrap = desc->bootstrap;
    out->common = desc_of(ended);
    if (desc->common)
        MIMO_TRY(
            mimo_read_descriptor(&out->common, sizeof out->common, desc->common, "communicator"));
    return MIMO_OK;
}

static mimo_status check_ended(const mimo_comm *ended)
{
    const mimo_family *family = ended->family;
    MIMO_CHECK(mimo_family_status(family) != MIMO_OK, MIMO_ERR_STATE,
               "%s: the communicator's family has not ended", CALL);
    MIMO_CHECK(!mimo_family_is_forgotten(family), MIMO_ERR_STATE,
               "%s: the communicator's family was forgotten", CALL);
    return MIMO_OK;
}

mimo_status mimo_comm_survivors(mimo_comm **out, mimo_comm *ended, const mimo_survivors_desc *given)
{
    MIMO_RANGE();
    mimo_survivors_desc desc = MIMO_SURVIVORS_DESC_INIT;
    mimo_survivors_terms terms = {0};
    mimo_comm *made = NULL;
    MIMO_CHECK(out && ended, MIMO_ERR_ARGUMENT, "%s: %s is NULL", CALL, out ? "ended" : "out");
    MIMO_ENTER(ended, CALL);
    if (given)
        MIMO_TRY(mimo_read_descriptor(&desc, sizeof desc, given, "survivors"));
    MIMO_TRY(check_ended(ended));
    MIMO_TRY(read_terms(&terms, ended, &desc));
    MIMO_TRY(mimo_reserve(&terms.ranks, ended->size, sizeof *terms.ranks));
    mimo_status status = ended->backend->survivors(&made, ended, &terms);
    if (status == MIMO_OK)
        *out = made;
    for (int i = 0; status == MIMO_OK && i < terms.count && desc.ranks; i++)
        desc.ranks[i] = terms.ranks[i];
    mimo_release(terms.ranks);
    return status;
}

int64_t mimo_comm_generation(const mimo_comm *comm)
{
    return comm->family->generation;
}
