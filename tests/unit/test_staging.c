/* Staging from the host's own allocator, or for the work of a stream: what is asked for, what is
 * given back, and when. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "device/staging.h"
#include "expect_failure.h"

static struct {
    int reserves, releases, lasts;
    size_t last, given_back; /* bytes */
    mimo_stream stream;      /* of the last call */
    bool none, odd;          /* give no memory; give it at an odd address */
    char *memory[8];         /* what free takes */
} seen;

static int context;
static bool recording;

static void *reserve(void *own, size_t bytes, mimo_stream stream)
{
    cr_assert_eq(own, &context);
    seen.last = bytes;
    seen.stream = stream;
    if (seen.none)
        return NULL;
    char *memory = aligned_alloc(256, (bytes + 511) / 256 * 256);
    seen.memory[seen.reserves++] = memory;
    return memory + seen.odd;
}

static void release(void *own, void *data, size_t bytes, mimo_stream stream)
{
    cr_assert_eq(own, &context);
    int i = 0;
    while (i < seen.reserves && seen.memory[i] != (char *)data - seen.odd)
        i++;
    cr_assert_lt(i, seen.reserves, "%p was not given", data);
    free(seen.memory[i]);
    seen.memory[i] = NULL;
    seen.given_back = bytes;
    seen.stream = stream;
    seen.releases++;
}

static bool records(mimo_stream stream)
{
    return recording && stream == &recording;
}

static mimo_device device; /* the host's, which records */
static const mimo_allocator allocator = {reserve, release, &context};

static mimo_staging begin(const mimo_allocator *from)
{
    memset(&seen, 0, sizeof seen);
    device = mimo_device_host;
    device.records = records;
    recording = false;
    return (mimo_staging){NULL, from};
}

Test(staging, from_an_allocator)
{
    void *first, *again, *larger;
    mimo_staging staging = begin(&allocator);
    const mimo_staging_key key = {&device, &recording, MIMO_STAGING_FULL};
    SUCCEEDS(mimo_staging_get(&first, &staging, &key, 100));
    cr_expect_eq(seen.last, 100);
    cr_expect_eq(seen.stream, &recording);
    SUCCEEDS(mimo_staging_get(&again, &staging, &key, 100));
    cr_expect_eq(again, first);
    cr_expect_eq(seen.reserves, 1, "%d", seen.reserves);
    SUCCEEDS(mimo_staging_get(&larger, &staging, &key, 300));
    cr_expect_eq(seen.releases, 1);
    cr_expect_eq(seen.given_back, 100);
    mimo_staging_release(&staging);
    cr_expect_eq(seen.releases, 2);
    cr_expect_eq(seen.given_back, 300);
    cr_expect_eq(seen.stream, &recording, "the area's own stream");
}

/* Memory for the work of a stream, by the functions of a device. */
static mimo_status reserve_on(void **out, int64_t bytes, mimo_stream stream)
{
    seen.last = (size_t)bytes;
    seen.stream = stream;
    *out = seen.memory[seen.reserves++] = malloc((size_t)bytes);
    return MIMO_OK;
}

static void release_on(void *memory, mimo_stream stream)
{
    seen.stream = stream;
    seen.releases += memory != NULL;
    free(memory);
}

static void release_last(void *memory)
{
    seen.lasts++;
    free(memory);
}

static void no_release(void *memory)
{
    cr_assert_null(memory, "release waits");
}

/* An area that grows is released in the order of its stream. The others are released at the end,
 * when streams may be gone. */
Test(staging, of_a_stream)
{
    void *first, *larger, *other;
    mimo_staging staging = begin(NULL);
    device.reserve_on = reserve_on;
    device.release_on = release_on;
    device.release_last = release_last;
    device.release = no_release;
    const mimo_staging_key key = {&device, &recording, MIMO_STAGING_FULL};
    const mimo_staging_key beside = {&device, &context, MIMO_STAGING_FULL};
    SUCCEEDS(mimo_staging_get(&first, &staging, &key, 100));
    cr_expect_eq(seen.stream, &recording);
    SUCCEEDS(mimo_staging_get(&other, &staging, &beside, 200));
    cr_expect_eq(seen.stream, &context);
    cr_expect_eq(seen.releases, 0);
    SUCCEEDS(mimo_staging_get(&larger, &staging, &key, 300));
    cr_expect_eq(seen.last, 300);
    cr_expect_eq(seen.releases, 1);
    cr_expect_eq(seen.stream, &recording);
    recording = true; /* what a graph uses stays */
    SUCCEEDS(mimo_staging_get(&larger, &staging, &key, 300));
    recording = false;
    SUCCEEDS(mimo_staging_get(&larger, &staging, &key, 400));
    cr_expect_eq(seen.releases, 1);
    cr_expect_eq(seen.lasts, 0);
    mimo_staging_release(&staging);
    cr_expect_eq(seen.releases, 1);
    cr_expect_eq(seen.lasts, 3);
}

/* Nothing is asked for with 0 bytes. */
Test(staging, of_no_bytes)
{
    void *area;
    mimo_staging staging = begin(&allocator);
    const mimo_staging_key key = {&device, NULL, MIMO_STAGING_PACKED};
    SUCCEEDS(mimo_staging_get(&area, &staging, &key, 0));
    cr_expect_eq(seen.last, 1);
    mimo_staging_release(&staging);
    cr_expect_eq(seen.given_back, 1);
}

/* The old area stays, and a later attempt works. */
Test(staging, without_memory)
{
    void *area, *same;
    mimo_staging staging = begin(&allocator);
    const mimo_staging_key key = {&device, NULL, MIMO_STAGING_FULL};
    SUCCEEDS(mimo_staging_get(&area, &staging, &key, 64));
    seen.none = true;
    FAILS(mimo_staging_get(&same, &staging, &key, 4096), MIMO_ERR_MEMORY, "`reserve` gave no",
          "4096 bytes");
    seen.none = false;
    SUCCEEDS(mimo_staging_get(&same, &staging, &key, 64));
    cr_expect_eq(same, area);
    SUCCEEDS(mimo_staging_get(&same, &staging, &key, 4096));
    mimo_staging_release(&staging);
    cr_expect_eq(seen.reserves, seen.releases);
}

Test(staging, at_an_odd_address)
{
    void *area;
    mimo_staging staging = begin(&allocator);
    const mimo_staging_key key = {&device, NULL, MIMO_STAGING_FULL};
    seen.odd = true;
    FAILS(mimo_staging_get(&area, &staging, &key, 64), MIMO_ERR_ARGUMENT, "no multiple of 256");
    cr_expect_eq(seen.releases, 1, "it is given back");
    mimo_staging_release(&staging);
    cr_expect_eq(seen.releases, 1);
}

/* While a graph is captured nothing grows, by the allocator or without. What is there serves. */
static void while_recording(const mimo_allocator *from)
{
    void *area, *same;
    mimo_staging staging = begin(from);
    const mimo_staging_key key = {&device, &recording, MIMO_STAGING_FULL};
    const mimo_staging_key other = {&device, NULL, MIMO_STAGING_FULL};
    recording = true;
    FAILS(mimo_staging_get(&area, &staging, &key, 64), MIMO_ERR_STATE, "64 bytes of staging",
          "captured");
    cr_expect_eq(seen.reserves, 0);
    recording = false;
    SUCCEEDS(mimo_staging_get(&area, &staging, &key, 64));
    recording = true;
    SUCCEEDS(mimo_staging_get(&same, &staging, &key, 64));
    cr_expect_eq(same, area);
    FAILS(mimo_staging_get(&same, &staging, &key, 65), MIMO_ERR_STATE, "65 bytes of staging");
    cr_assert_eq(mimo_staging_get(&same, &staging, &other, 65), MIMO_OK, "on another stream");
    mimo_staging_release(&staging);
}

Test(staging, while_recording)
{
    while_recording(&allocator);
    while_recording(NULL);
}

/* A graph that used an area may be replayed after a larger call has replaced it. */
static void used_by_a_graph(const mimo_allocator *from)
{
    enum { BYTES = 64 };
    char *used, *larger, *again, zeros[BYTES] = {0};
    mimo_staging staging = begin(from);
    const mimo_staging_key key = {&device, &recording, MIMO_STAGING_FULL};
    SUCCEEDS(mimo_staging_get((void **)&used, &staging, &key, BYTES));
    recording = true;
    SUCCEEDS(mimo_staging_get((void **)&used, &staging, &key, BYTES));
    recording = false;
    memset(used, 7, BYTES);
    SUCCEEDS(mimo_staging_get((void **)&larger, &staging, &key, 1000));
    memset(larger, 0, 1000);
    cr_expect_neq(larger, used);
    memset(used, 0, BYTES); /* the replay: a sanitizer sees whether this is still memory */
    cr_expect_eq(memcmp(used, zeros, BYTES), 0);
    cr_expect_eq(seen.releases, 0);
    SUCCEEDS(mimo_staging_get((void **)&again, &staging, &key, 2000));
    cr_expect_eq(seen.releases, from ? 1 : 0, "no graph uses the second area");
    mimo_staging_release(&staging);
    cr_expect_eq(seen.releases, seen.reserves);
}

Test(staging, used_by_a_graph)
{
    used_by_a_graph(&allocator);
    used_by_a_graph(NULL);
}
