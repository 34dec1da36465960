/* mimo-why: who waits for whom, of running processes and of files that killed ones have left. It
 * reads their rings, and never stops them or writes to them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/memory.h"
#include "tools/options/option_table.h"
#include "tools/why/why_calls.h"
#include "tools/why/why_rows.h"
#include "tools/why/why_watch.h"

enum { EXIT_NOBODY = 0, EXIT_WAITS = 1, EXIT_NO_RINGS = 2, EXIT_ERROR = 3 };

/* Between the two looks. */
static const int64_t GAP = 200000000;

typedef struct why_request {
    const char **places;
    int place_count;
    double watch; /* seconds; 0: once */
    bool json, trace;
    const char *flight; /* a folder; NULL: no files */
} why_request;

#define OPTION_INTO why_request

static const option_row rows[] = {
    OPTION_NUMBER("watch", "SECONDS", watch, 0, 86400,
                  "Look again each time this long has passed, until SIGINT or SIGTERM, or until "
                  "all processes that had rings have ended",
                  .above = true),
    OPTION_FLAG("trace", trace,
                "Print the last calls as JSON for chrome://tracing and Perfetto instead"),
    OPTION_TEXT("flight", "FOLDER", flight,
                "Also write the last calls to FOLDER, a file a rank, as torch's flight recorder "
                "does (torchfrtrace FOLDER reads them)"),
    OPTION_FLAG("json", json, "Print JSON, an object on a line for each look"),
};

static mimo_status take_place(void *into, const char *word)
{
    why_request *request = into;
    MIMO_TRY(mimo_regrow(&request->places, request->place_count, (int64_t)request->place_count + 1,
                         sizeof *request->places));
    request->places[request->place_count++] = word;
    return MIMO_OK;
}

static const option_table table = {
    .program = "mimo-why",
    .about =
        "Say which rank of a run others wait for, and in which call.\v"
        "Without a word: all processes of this user on this host. PID: those that this process "
        "knows. FOLDER: files of MIMO_RING=file, of one host or copied together from several.\n"
        "\n"
        "The verdict comes first, then a row for each rank. Rings are read twice, 0.2 seconds "
        "apart: who waits only in one of both does not count.\n"
        "\n"
        "Exit status: 0 nobody waits, or data moves meanwhile; 1 somebody waits; 2 there are "
        "no rings; 3 an error.",
    .words = "[PID|FOLDER...]",
    .take = take_place,
    OPTION_ROWS(rows)};

static int fail(void)
{
    fprintf(stderr, "mimo-why: %s\n", mimo_last_error());
    return EXIT_ERROR;
}

static mimo_status print(why_rings *rings, const mimo_ring_verdict *verdict,
                         const mimo_ring_world *world, const why_request *request)
{
    mimo_ring_waits waits;
    if (request->flight)
        MIMO_TRY(why_write_flight(request->flight, rings));
    if (request->trace)
        return why_print_trace(stdout, rings);
    mimo_status status = mimo_ring_waits_find(&waits, world);
    if (status == MIMO_OK)
        (request->json ? why_print_json : why_print_text)(stdout, rings, &waits, verdict);
    mimo_ring_waits_release(&waits);
    return status;
}

static mimo_status judge(int *exit_status, why_rings *rings, const why_request *request)
{
    mimo_ring_verdict verdict;
    MIMO_TRY(why_rings_look(rings, GAP));
    const mimo_ring_world world = why_world_of(rings);
    MIMO_TRY(mimo_ring_judge(&verdict, &world, "\n"));
    *exit_status = rings->count == 0 ? EXIT_NO_RINGS : verdict.stands ? EXIT_WAITS : EXIT_NOBODY;
    return print(rings, &verdict, &world, request);
}

static int look(why_watch *watch, const why_request *request)
{
    why_rings rings;
    int exit_status = EXIT_ERROR;
    mimo_status status =
        why_rings_find(&rings, request->places, request->place_count, watch->count > 0);
    if (status == MIMO_OK)
        status = judge(&exit_status, &rings, request);
    if (status == MIMO_OK)
        status = why_watch_note(watch, &rings);
    why_rings_release(&rings);
    return status == MIMO_OK ? exit_status : fail();
}

/* Who reads a pipe gets each look as soon as it is printed. False: nobody reads any more. */
static bool end_look(const why_request *request)
{
    if (!request->json)
        putchar('\n');
    return fflush(stdout) == 0;
}

static int watch(const why_request *request)
{
    why_watch seen = {NULL, 0};
    if (request->watch > 0)
        why_watch_begin();
    int status = look(&seen, request);
    while (request->watch > 0 && status != EXIT_ERROR && end_look(request) &&
           !why_watch_is_over(&seen) && why_watch_wait(request->watch))
        status = look(&seen, request);
    why_watch_release(&seen);
    return status;
}

static int finish(int status)
{
    bool failed = ferror(stdout);
    failed = fclose(stdout) != 0 || failed;
    if (!failed)
        return status;
    fprintf(stderr, "mimo-why: cannot write to stdout: %s\n", strerror(errno));
    return EXIT_ERROR;
}

int main(int argc, char **argv)
{
    why_request request = {.watch = 0};
    option_asked asked;
    if (option_parse(&asked, &request, &table, argc, argv) != MIMO_OK)
        return fail();
    int status = EXIT_NOBODY;
    if (asked == OPTION_ASKED_NOTHING)
        status = watch(&request);
    else if (option_answer(stdout, &table, asked) != MIMO_OK)
        status = fail();
    mimo_release(request.places);
    return finish(status);
}
