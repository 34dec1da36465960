/* Timelines of nodes: as planned, and of a run. */
#include "schedule/node_types.h"

#include <inttypes.h>

#include "core/check.h"
#include "core/descriptor.h"
#include "core/memory.h"
#include "schedule/schedule_formats.h"

MIMO_DEFINE_INIT(mimo_nodes_run, MIMO_NODES_RUN_INIT)

enum { TITLE = 600 };

static mimo_status write_timeline(FILE *stream, const mimo_node_timeline *line,
                                  mimo_schedule_format format, const char *title)
{
    if (format == MIMO_SCHEDULE_SVG)
        mimo_nodes_write_svg(stream, line, title);
    else
        mimo_nodes_write_trace(stream, line);
    return MIMO_OK;
}

/* "pp 2, 4 micro-batches". */
static void write_sizes(char *text, size_t capacity, const mimo_nodes *nodes)
{
    const mimo_schedule_desc *desc = &nodes->schedule->desc;
    if (nodes->alone)
        snprintf(text, capacity, "one step");
    else
        snprintf(text, capacity, "pp %" PRId64 ", %" PRId64 " micro-batches", desc->stages,
                 desc->micro_batches);
}

/* ------------------------------------------- planned ----------------------------------------- */

static void write_plan_title(char title[TITLE], const mimo_nodes *nodes,
                             const mimo_nodes_report *report)
{
    char sizes[120];
    int64_t hidden = report->hidden > 0 ? report->hidden : 0;
    write_sizes(sizes, sizeof sizes, nodes);
    snprintf(title, TITLE,
             "%s: time %" PRId64 ", with exchanges one after the other %" PRId64
             ", without them %" PRId64 "\n%" PRId64 ".%" PRId64
             "%% of the exchanges hidden; all of them are %" PRId64 ".%" PRId64
             "%% of the time that nothing hides",
             sizes, report->time, report->serial, report->local, hidden / 10, hidden % 10,
             report->ceiling / 10, report->ceiling % 10);
}

static mimo_status write_plan(FILE *stream, const mimo_nodes *nodes, mimo_schedule_format format,
                              const mimo_node_time **times)
{
    char title[TITLE];
    mimo_nodes_report report = MIMO_NODES_REPORT_INIT;
    const mimo_node_timeline line = {nodes, times, NULL};
    for (int64_t p = 0; p < nodes->schedule->desc.stages; p++)
        times[p] = nodes->stages[p].times;
    MIMO_TRY(mimo_nodes_report_of(&report, nodes));
    write_plan_title(title, nodes, &report);
    return write_timeline(stream, &line, format, title);
}

mimo_status mimo_nodes_write_plan(FILE *stream, const mimo_nodes *nodes,
                                  mimo_schedule_format format)
{
    const mimo_node_time **times;
    MIMO_TRY(mimo_reserve(&times, nodes->schedule->desc.stages, sizeof *times));
    mimo_status status = write_plan(stream, nodes, format, times);
    mimo_release(times);
    return status;
}

/* -------------------------------------------- runs ------------------------------------------- */

static mimo_status check_times(const mimo_node_timeline *line)
{
    for (int64_t p = 0; p < line->nodes->schedule->desc.stages; p++)
        for (int64_t i = 0; i < line->nodes->stages[p].count; i++) {
            const mimo_node_time *time = &line->times[p][i];
            MIMO_CHECK(time->begin >= 0 && time->end >= time->begin, MIMO_ERR_ARGUMENT,
                       "mimo_nodes_print_run: %s from %" PRId64 " to %" PRId64 " %s",
                       mimo_node_name_of(&line->nodes->stages[p].nodes[i]).text, time->begin,
                       time->end, mimo_node_where_of(line->nodes, p, i).text);
        }
    return MIMO_OK;
}

static int64_t shared_by(const mimo_node_time *a, const mimo_node_time *b)
{
    int64_t begin = a->begin > b->begin ? a->begin : b->begin;
    int64_t end = a->end < b->end ? a->end : b->end;
    return end > begin ? end - begin : 0;
}

/* What of a move passed while its stage computed. Nodes of COMPUTE follow each other, so nothing
 * counts twice; those before *from have ended before any move that begins later. */
static int64_t beside_of(int64_t *from, const mimo_stage_nodes *list, const mimo_node_time *times,
                         const mimo_node_time *move)
{
    int64_t beside = 0;
    while (*from < list->count && times[*from].end <= move->begin)
        ++*from;
    for (int64_t k = *from; k < list->count; k++) {
        if (mimo_node_lane_of(list->nodes[k].part) != MIMO_NODE_LANE_COMPUTE)
            continue;
        if (times[k].begin >= move->end)
            break;
        beside += shared_by(move, &times[k]);
    }
    return beside;
}

static void sum_exchanges(int64_t *all, int64_t *beside, const mimo_node_timeline *line)
{
    *all = *beside = 0;
    for (int64_t p = 0; p < line->nodes->schedule->desc.stages; p++) {
        const mimo_stage_nodes *list = &line->nodes->stages[p];
        int64_t from = 0;
        for (int64_t i = 0; i < list->count; i++) {
            const mimo_node_time *move = &line->times[p][i];
            if (mimo_node_lane_of(list->nodes[i].part) != MIMO_NODE_LANE_EXCHANGES)
                continue;
            *all += move->end - move->begin;
            *beside += beside_of(&from, list, line->times[p], move);
        }
    }
}

static void write_run_title(char title[TITLE], const mimo_node_timeline *line)
{
    char sizes[120];
    int64_t all, beside, time = 0;
    const char *unit = line->unit ? line->unit : "", *space = line->unit ? " " : "";
    sum_exchanges(&all, &beside, line);
    for (int64_t p = 0; p < line->nodes->schedule->desc.stages; p++)
        for (int64_t i = 0; i < line->nodes->stages[p].count; i++)
            time = line->times[p][i].end > time ? line->times[p][i].end : time;
    int share = mimo_permille(beside, all);
    write_sizes(sizes, sizeof sizes, line->nodes);
    snprintf(title, TITLE,
             "%s: ran in %" PRId64 "%s%s\nexchanges are on their way for %" PRId64
             "%s%s, %d.%d%% of it beside products",
             sizes, time, space, unit, all, space, unit, share / 10, share % 10);
}

mimo_status mimo_nodes_print_run(FILE *stream, const mimo_nodes *nodes, mimo_schedule_format format,
                                 const mimo_nodes_run *run)
{
    char title[TITLE];
    mimo_nodes_run own = MIMO_NODES_RUN_INIT;
    MIMO_CHECK(nodes && stream && run, MIMO_ERR_ARGUMENT, "mimo_nodes_print_run: %s is NULL",
               !nodes ? "nodes" : (stream ? "run" : "stream"));
    MIMO_TRY(mimo_read_descriptor(&own, sizeof own, run, "mimo_nodes_run"));
    MIMO_CHECK(own.times, MIMO_ERR_ARGUMENT, "mimo_nodes_print_run: times is NULL");
    MIMO_CHECK(format == MIMO_SCHEDULE_SVG || format == MIMO_SCHEDULE_TRACE, MIMO_ERR_ARGUMENT,
               "mimo_nodes_print_run: format %d has no times", (int)format);
    MIMO_TRY(mimo_check_unit("mimo_nodes_print_run", own.unit));
    const mimo_node_timeline line = {nodes, own.times, own.unit};
    MIMO_TRY(check_times(&line));
    write_run_title(title, &line);
    MIMO_TRY(write_timeline(stream, &line, format, title));
    bool whole = fflush(stream) == 0 && !ferror(stream);
    MIMO_CHECK(whole, MIMO_ERR_IO, "mimo_nodes_print_run: the stream takes no more");
    return MIMO_OK;
}
