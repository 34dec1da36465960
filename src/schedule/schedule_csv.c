/*
 * The tables of torch.distributed.pipelining ("compute_only"), both ways.
 *
 * A row is a stage, a cell one step: the number of the chunk in the model, F, B, I or W, and the
 * micro-batch; or a pair (0F1;4B0)OVERLAP_F_B. A blank cell is a bubble. 0REDUCE_GRAD, behind the
 * backwards of GPipe and 1F1B, is no step of a micro-batch: reading leaves it out.
 */
#include "schedule/schedule_formats.h"

#include <inttypes.h>
#include <string.h>

#include "core/check.h"

enum { NO_CHUNK = -1 };

static const char overlap_name[] = ")OVERLAP_F_B", reduce_name[] = "REDUCE_GRAD";

/* -------------------------------------------- read ------------------------------------------ */

/* A cell of the table, and where it stands. */
typedef struct table_cell {
    mimo_schedule *schedule;
    const char *text;
    int length;
    int64_t row, column; /* from 0 */
} table_cell;

/* Take a whole number from *at, before `end`. */
static bool take_number(int64_t *out, const char **at, const char *end)
{
    const char *begin = *at;
    int64_t value = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++) {
        if (value > (INT64_MAX - 9) / 10)
            return false;
        value = value * 10 + (**at - '0');
    }
    *out = value;
    return *at > begin;
}

/* Take 5B1 from *at. *number: of the chunk in the model, 5. */
static bool take_step(mimo_schedule_step *out, int64_t *number, const char **at, const char *end)
{
    static const char letters[] = "FBIW";
    static const mimo_step_kind kinds[] = {MIMO_STEP_F, MIMO_STEP_B, MIMO_STEP_I, MIMO_STEP_W};
    *out = (mimo_schedule_step){MIMO_STEP_F, 0, 0, 0, 0};
    if (!take_number(number, at, end) || *at == end)
        return false;
    const char *letter = strchr(letters, **at);
    if (!letter || *letter == '\0')
        return false;
    (*at)++;
    out->kind = kinds[letter - letters];
    return take_number(&out->index, at, end);
}

#define AT_CELL "schedule: row %" PRId64 ", cell %" PRId64 ": "

/* A chunk of the model belongs to one stage. Stage p has chunk p, and one of each further pp. */
static mimo_status place_chunk(const table_cell *cell, mimo_schedule_step *step, int64_t number)
{
    mimo_schedule *schedule = cell->schedule;
    int64_t pp = schedule->desc.stages, row = cell->row + 1, column = cell->column + 1;
    MIMO_CHECK(number < mimo_model_chunks(schedule), MIMO_ERR_ARGUMENT,
               AT_CELL "chunk %" PRId64 " of %" PRId64, row, column, number,
               mimo_model_chunks(schedule));
    step->chunk = number / pp;
    int64_t *has = &schedule->number_of[cell->row * schedule->desc.chunks + step->chunk];
    int64_t *owner = &schedule->stage_of[number];
    if (*has == NO_CHUNK && *owner == NO_CHUNK) {
        *has = number;
        *owner = number < pp ? number : cell->row;
    }
    MIMO_CHECK(*has == NO_CHUNK || *has == number, MIMO_ERR_ARGUMENT,
               AT_CELL "chunk %" PRId64 " beside chunk %" PRId64 ": a row has one of each %" PRId64
                       " chunks of the model",
               row, column, number, *has, pp);
    MIMO_CHECK(*owner == cell->row, MIMO_ERR_ARGUMENT,
               AT_CELL "chunk %" PRId64 " of the model belongs to row %" PRId64, row, column,
               number, *owner + 1);
    return MIMO_OK;
}

/* Take the steps of a cell: one, or a pair. Returns their number, 0 where it is none. */
static int take_cell(mimo_schedule_step steps[2], int64_t numbers[2], const table_cell *cell)
{
    const char *at = cell->text, *end = at + cell->length;
    size_t tail = sizeof overlap_name - 1;
    bool pair = *at == '(';
    at += pair ? 1 : 0;
    if (!take_step(&steps[0], &numbers[0], &at, end))
        return 0;
    if (!pair)
        return at == end ? 1 : 0;
    if (at == end || *at++ != ';' || !take_step(&steps[1], &numbers[1], &at, end))
        return 0;
    bool whole = (size_t)(end - at) == tail && memcmp(at, overlap_name, tail) == 0;
    return whole && steps[0].kind == MIMO_STEP_F && steps[1].kind == MIMO_STEP_B ? 2 : 0;
}

/* The reduction of a chunk's gradients over dp, whose place is the caller's. */
static bool is_reduction(const table_cell *cell)
{
    int64_t number;
    const char *at = cell->text, *end = at + cell->length;
    size_t length = sizeof reduce_name - 1;
    return take_number(&number, &at, end) && (size_t)(end - at) == length &&
           memcmp(at, reduce_name, length) == 0;
}

static mimo_status read_cell(const table_cell *cell)
{
    mimo_schedule_step steps[2];
    int64_t numbers[2];
    if (is_reduction(cell))
        return MIMO_OK;
    int count = take_cell(steps, numbers, cell);
    MIMO_CHECK(count > 0, MIMO_ERR_ARGUMENT, AT_CELL "'%.*s' is no step", cell->row + 1,
               cell->column + 1, cell->length < 60 ? cell->length : 60, cell->text);
    for (int i = 0; i < count; i++)
        MIMO_TRY(place_chunk(cell, &steps[i], numbers[i]));
    if (count == 2)
        steps[0] = (mimo_schedule_step){MIMO_STEP_FB, steps[0].index, steps[0].chunk,
                                        steps[1].index, steps[1].chunk};
    return mimo_stage_append(&cell->schedule->lists[cell->row], steps[0]);
}

static bool is_space(char letter)
{
    return letter == ' ' || letter == '\t' || letter == '\r';
}

/* The cells of the line from `at` to `end`. */
static mimo_status read_row(mimo_schedule *schedule, int64_t row, const char *at, const char *end)
{
    for (int64_t column = 0; at <= end; column++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end, *next = stop + 1;
        while (at < stop && is_space(*at))
            at++;
        while (stop > at && is_space(stop[-1]))
            stop--;
        if (stop > at)
            MIMO_TRY(read_cell(&(table_cell){schedule, at, (int)(stop - at), row, column}));
        at = next;
    }
    return MIMO_OK;
}

static void forget_chunks(mimo_schedule *schedule)
{
    for (int64_t i = 0; i < mimo_model_chunks(schedule); i++)
        schedule->stage_of[i] = schedule->number_of[i] = NO_CHUNK;
}

static mimo_status check_chunks(const mimo_schedule *schedule)
{
    int64_t chunks = schedule->desc.chunks;
    for (int64_t i = 0; i < mimo_model_chunks(schedule); i++)
        MIMO_CHECK(schedule->number_of[i] != NO_CHUNK, MIMO_ERR_ARGUMENT,
                   "schedule: row %" PRId64 " has no step of its chunk %" PRId64 " of %" PRId64,
                   i / chunks + 1, i % chunks, chunks);
    return MIMO_OK;
}

mimo_status mimo_schedule_read_csv(mimo_schedule *schedule, const char *text)
{
    int64_t row = 0, pp = schedule->desc.stages;
    forget_chunks(schedule);
    for (const char *line = text; *line; row++) {
        const char *end = line + strcspn(line, "\n");
        if (row < pp)
            MIMO_TRY(read_row(schedule, row, line, end));
        line = *end ? end + 1 : end;
    }
    MIMO_CHECK(row == pp, MIMO_ERR_ARGUMENT, "schedule: %" PRId64 " rows over pp=%" PRId64, row,
               pp);
    return check_chunks(schedule);
}

/* -------------------------------------------- write ----------------------------------------- */

static void write_part(FILE *stream, const mimo_schedule *schedule, int64_t stage,
                       const mimo_schedule_step *part)
{
    static const char letters[MIMO_STEP_KINDS] = {
        [MIMO_STEP_F] = 'F', [MIMO_STEP_B] = 'B', [MIMO_STEP_I] = 'I', [MIMO_STEP_W] = 'W'};
    fprintf(stream, "%" PRId64 "%c%" PRId64, mimo_step_number(schedule, stage, part->chunk),
            letters[part->kind], part->index);
}

static void write_cell(FILE *stream, const mimo_schedule *schedule, int64_t stage,
                       const mimo_schedule_step *step)
{
    mimo_schedule_step parts[2];
    bool pair = mimo_step_parts(parts, step) == 2;
    if (pair)
        fputc('(', stream);
    write_part(stream, schedule, stage, &parts[0]);
    if (!pair)
        return;
    fputc(';', stream);
    write_part(stream, schedule, stage, &parts[1]);
    fputs(overlap_name, stream);
}

void mimo_schedule_write_csv(FILE *stream, const mimo_schedule *schedule)
{
    for (int64_t p = 0; p < schedule->desc.stages; p++) {
        const char *before = "";
        for (int64_t i = 0; i < schedule->lists[p].count; i++) {
            const mimo_schedule_step *step = &schedule->lists[p].steps[i];
            if (!mimo_step_of_llm(step->kind))
                continue;
            fputs(before, stream);
            write_cell(stream, schedule, p, step);
            before = ",";
        }
        fputc('\n', stream);
    }
}
