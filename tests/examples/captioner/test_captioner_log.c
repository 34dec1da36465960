/* The training log and the progress display. */
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include "captioner/support/progress.h"
#include "captioner/training/log_cut.h"
#include "captioner/training/train_log.h"
#include "core/check.h"
#include "own_folder.h"

OWN_FOLDER(log, "log", .timeout = 60);

static const struct train_log_line lines[] = {
    {1, 5.545177444479562, 431, 1.0 / 3, 81.25, NULL, NULL, NULL},
    {2, 0.1, 9007199254740991, DBL_MAX, 1e-9, NULL, NULL, NULL},
    {3, 2.0, 0, 0, DBL_MIN, NULL, NULL, NULL},
};
enum { LINES = sizeof lines / sizeof *lines };

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    cr_assert(cJSON_IsNumber(item), "%s", name);
    return item->valuedouble;
}

static void check_line(const char *text, const struct train_log_line *want)
{
    cJSON *object = cJSON_ParseWithOpts(text, NULL, 0);
    cr_assert(cJSON_IsObject(object), "%s", text);
    cr_assert_eq(cJSON_GetArraySize(object), 5, "%s", text);
    cr_assert(strncmp(text, "{\"step\":", 8) == 0, "%s", text);
    cr_assert_eq(number(object, "step"), (double)want->step, "%s", text);
    cr_assert_eq(number(object, "loss"), want->loss, "%s", text);
    cr_assert_eq(number(object, "tokens"), (double)want->tokens, "%s", text);
    cr_assert_eq(number(object, "grad_norm"), want->grad_norm, "%s", text);
    cr_assert_eq(number(object, "ms"), want->ms, "%s", text);
    cJSON_Delete(object);
}

Test(log, lines_give_the_same_numbers_back_at_once)
{
    char text[512];
    struct train_log *log = NULL;
    SUCCEEDS(train_log_open(&log, path, false));
    FILE *reader = fopen(path, "r");
    cr_assert(reader);
    for (int i = 0; i < LINES; i++) {
        SUCCEEDS(train_log_write(log, &lines[i]));
        cr_assert(fgets(text, sizeof text, reader), "line %d was not flushed", i);
        cr_assert_eq(text[strlen(text) - 1], '\n');
        check_line(text, &lines[i]);
        clearerr(reader);
    }
    SUCCEEDS(train_log_close(log));
    /* A resumed run appends, a new one starts an empty log. */
    SUCCEEDS(train_log_open(&log, path, true));
    SUCCEEDS(train_log_write(log, &lines[0]));
    SUCCEEDS(train_log_close(log));
    cr_assert(fgets(text, sizeof text, reader), "nothing was appended");
    fclose(reader);
    SUCCEEDS(train_log_open(&log, path, false));
    SUCCEEDS(train_log_close(log));
    reader = fopen(path, "r");
    cr_assert_null(fgets(text, sizeof text, reader), "a new log begins empty");
    fclose(reader);
}

/* What a log of a start, of a line or of both holds, before it is closed. */
static void expect_log(const struct train_log_start *start, const struct train_log_line *line,
                       const char *text)
{
    struct train_log *log = NULL;
    SUCCEEDS(train_log_open(&log, path, false));
    if (start)
        SUCCEEDS(train_log_begin(log, start));
    if (line)
        SUCCEEDS(train_log_write(log, line));
    expect_file(path, text);
    SUCCEEDS(train_log_close(log));
}

Test(log, a_loss_that_is_not_finite_is_still_json)
{
    const struct train_log_line line = {7, (double)NAN, 3, (double)INFINITY, 1, NULL, NULL, NULL};
    expect_log(NULL, &line,
               "{\"step\":7,\"loss\":null,\"tokens\":3,\"grad_norm\":null,\"ms\":1}\n");
}

/* A tensor of each kind: what is trained, and what is frozen. */
static const int64_t matrix[] = {300, 128}, vector[] = {3};
static const struct train_log_tensor tensors[] = {
    {"e.a", "encoder", "sharded", matrix, 2, true, UINT64_C(0x143c6f7ba8e5b06a), 1},
    {"l.b", "llm", "frozen", vector, 1, false, UINT64_MAX, 0},
};

/* With --log-hashes=none a run in the fixed order says its order alone; and its experts' grid. */
Test(log, a_start_without_hashes)
{
    const struct train_log_start start = {1, 2, "dp=1", "cp=1,dp=1", "8,1", NULL, "ep=1"};
    expect_log(&start, NULL,
               "{\"first_step\":1,\"micro_batches\":2,\"grids\":{\"encoder\":\"dp=1\","
               "\"llm\":\"cp=1,dp=1\",\"experts\":\"ep=1\"},"
               "\"same_bits\":\"8,1\"}\n");
}

static const struct {
    struct train_log_hashes hashes;
    const char *start, *line; /* what is written from "params" on */
} with_hashes[] = {
    {{UINT64_C(0x143c6f7ba8e5b069), 1, 0, NULL},
     "\"params\":\"143c6f7ba8e5b069\"}\n",
     "\"params\":\"143c6f7ba8e5b069\",\"grads\":\"0000000000000001\"}\n"},
    {{UINT64_C(0x143c6f7ba8e5b069), 1, 2, tensors},
     "\"params\":\"143c6f7ba8e5b069\",\"tensors\":{"
     "\"e.a\":{\"module\":\"encoder\",\"shape\":[300,128],\"rule\":\"sharded\","
     "\"params\":\"143c6f7ba8e5b06a\"},"
     "\"l.b\":{\"module\":\"llm\",\"shape\":[3],\"rule\":\"frozen\","
     "\"params\":\"ffffffffffffffff\"}}}\n",
     "\"params\":\"143c6f7ba8e5b069\",\"grads\":\"0000000000000001\",\"tensors\":{"
     "\"e.a\":[\"143c6f7ba8e5b06a\",\"0000000000000001\"],"
     "\"l.b\":[\"ffffffffffffffff\",null]}}\n"},
};

Test(log, hashes)
{
    char wanted[1024];
    for (size_t i = 0; i < sizeof with_hashes / sizeof *with_hashes; i++) {
        struct train_log_line line = {8, 0.5, 3, 2, 1, &with_hashes[i].hashes, NULL, NULL};
        struct train_log_start start = {
            8,   4, "tp=2,dp=4", "tp=2,cp=2,dp=2", i > 0 ? "8,4" : NULL, &with_hashes[i].hashes,
            NULL};
        snprintf(wanted, sizeof wanted,
                 "{\"first_step\":8,\"micro_batches\":4,\"grids\":{\"encoder\":\"tp=2,dp=4\","
                 "\"llm\":\"tp=2,cp=2,dp=2\"}%s,%s"
                 "{\"step\":8,\"loss\":0.5,\"tokens\":3,\"grad_norm\":2,\"ms\":1,%s",
                 i > 0 ? ",\"same_bits\":\"8,4\"" : "", with_hashes[i].start, with_hashes[i].line);
        expect_log(&start, &line, wanted);
    }
}

Test(log, a_look_at_held_out_samples_and_at_lanes)
{
    const double held_out = 0.625;
    const struct train_log_balance balance = {1.75, 1, (double)NAN};
    struct train_log_line line = {8, 0.5, 3, 2, 1, &with_hashes[0].hashes, &held_out, &balance};
    expect_log(NULL, &line,
               "{\"step\":8,\"loss\":0.5,\"tokens\":3,\"grad_norm\":2,\"ms\":1,"
               "\"held_out\":0.625,"
               "\"balance\":{\"loaded\":1.75,\"encoded\":1,\"moved\":null},"
               "\"params\":\"143c6f7ba8e5b069\","
               "\"grads\":\"0000000000000001\"}\n");
}

/* Longer than any buffer of stdio, so that parts of the line fail before its end. */
Test(log, a_full_disk_ends_a_long_line)
{
    enum { MANY = 20000 };
    struct train_log_tensor *many = calloc(MANY, sizeof *many);
    for (int i = 0; i < MANY; i++)
        many[i] = tensors[0];
    struct train_log_hashes hashes = {1, 2, MANY, many};
    struct train_log_start start = {1, 1, "dp=1", "dp=1", "8,4", &hashes, NULL};
    struct train_log_line line = {4, 0.5, 3, 2, 1, &hashes, NULL, NULL};
    const char *sentence = "cannot write step %d to the log /dev/full: No space left on device";
    for (int i = 0; i < 2; i++) {
        struct train_log *log = NULL;
        char wanted[128];
        SUCCEEDS(train_log_open(&log, "/dev/full", false));
        cr_assert_eq(i ? train_log_write(log, &line) : train_log_begin(log, &start), MIMO_ERR_IO);
        snprintf(wanted, sizeof wanted, sentence, i ? 4 : 1);
        cr_assert_str_eq(mimo_last_error(), wanted);
        (void)train_log_close(log);
    }
    free(many);
}

Test(log, a_full_disk_is_one_sentence)
{
    struct train_log *log = NULL;
    SUCCEEDS(train_log_open(&log, "/dev/full", false));
    cr_assert_eq(train_log_write(log, &lines[0]), MIMO_ERR_IO);
    cr_assert_str_eq(mimo_last_error(),
                     "cannot write step 1 to the log /dev/full: No space left on device");
    (void)train_log_close(log);
    log = NULL;
    FAILS(train_log_open(&log, "/nowhere/log", false), MIMO_ERR_IO,
          "the log /nowhere/log: No such file");
    cr_assert_null(log);
    SUCCEEDS(train_log_close(NULL));
}

/* Nobody reads it, or nobody reads any more: either would hold all ranks. */
Test(log, a_pipe_is_refused, .timeout = 20)
{
    struct train_log *log = NULL;
    cr_assert_eq(mkfifo(path, 0600), 0);
    for (int read = 0; read < 2; read++) {
        int reader = read ? open(path, O_RDONLY | O_NONBLOCK) : -1;
        FAILS(train_log_open(&log, path, read), MIMO_ERR_IO,
              "log: it is a pipe, and the run would wait");
        cr_assert_null(log);
        if (reader >= 0)
            close(reader);
    }
}

#define STEP(step) "{\"step\":" #step ",\"loss\":1}\n"
#define START(first) "{\"first_step\":" #first ",\"micro_batches\":1}\n"

/* What a run that goes on after step 2 leaves of a log. */
static const struct {
    const char *name, *before, *after;
} cuts[] = {
    {"nothing", "", ""},
    {"all of it", START(1) STEP(1) STEP(2), START(1) STEP(1) STEP(2)},
    {"a log that ends before", STEP(1), STEP(1)},
    {"later steps", STEP(1) STEP(2) STEP(3) STEP(4), STEP(1) STEP(2)},
    {"none", STEP(3), ""},
    {"a line that was cut", STEP(1) STEP(2) "{\"step\":3,\"lo", STEP(1) STEP(2)},
    {"one of a step that is done", STEP(1) "{\"step\":2,\"loss\":1}", STEP(1)},
    {"bytes that a disk never got", STEP(1) STEP(2) "x", STEP(1) STEP(2)},
    {"the start of a run that took later steps", STEP(1) STEP(2) START(3) STEP(3), STEP(1) STEP(2)},
    {"the start of one that took these", STEP(1) START(2) STEP(2) STEP(3),
     STEP(1) START(2) STEP(2)},
};

static void put(const char *text)
{
    put_file(path, text, strlen(text));
}

Test(log, a_run_that_goes_on_cuts_what_it_writes_again)
{
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        put(cuts[i].before);
        SUCCEEDS(log_cut_after(path, 2));
        expect_file(path, cuts[i].after);
    }
    put(STEP(1) "{\"stop\":2}\n" STEP(3));
    FAILS(log_cut_after(path, 2), MIMO_ERR_IO, "line 2 is none of the captioner's");
    expect_file(path, STEP(1) "{\"stop\":2}\n" STEP(3));
    unlink(path);
    cr_assert_eq(log_cut_after(path, 2), MIMO_OK, "a log that is not there yet");
    cr_assert_neq(access(path, F_OK), 0, "and is not made here");
    SUCCEEDS(log_cut_after("/dev/null", 2));
}

/* Who had the log open before writes to no log. */
Test(log, another_file_takes_the_place_of_a_log)
{
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        int fd = -1;
        struct train_log *log;
        put(cuts[i].before);
        FILE *old = fopen(path, "a");
        cr_assert(old);
        SUCCEEDS(log_replace_after(&fd, path, 2));
        cr_assert(fputs("late\n", old) >= 0 && fclose(old) == 0);
        expect_file(path, cuts[i].after);
        SUCCEEDS(train_log_take(&log, path, fd));
        SUCCEEDS(train_log_write(log, &lines[0]));
        SUCCEEDS(train_log_close(log));
        struct stat found;
        cr_assert(stat(path, &found) == 0 && found.st_size > (off_t)strlen(cuts[i].after),
                  "%s: the next line has its place behind them", cuts[i].name);
    }
    int fd = -1;
    put(STEP(1) "{\"stop\":2}\n" STEP(3));
    cr_assert_eq(log_replace_after(&fd, path, 2), MIMO_ERR_IO);
    expect_file(path, STEP(1) "{\"stop\":2}\n" STEP(3));
    SUCCEEDS(log_replace_after(&fd, path, 0));
    close(fd);
    expect_file(path, "");
    cr_assert_eq(log_replace_after(&fd, "/dev/null", 2), MIMO_ERR_IO);
}

/* The output of a run of steps (first, last] at 80 ms each. */
static char *run(enum progress_kind kind, int64_t first, int64_t last)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    struct progress progress;
    cr_assert_eq(progress_kind_of(stream), PROGRESS_LINES, "memory is no terminal");
    progress_begin(&progress, stream, kind, first, last);
    for (int64_t step = first + 1; step <= last; step++)
        progress_step(&progress, step, 2.5, 0.08 * (double)(step - first));
    progress_end(&progress);
    fclose(stream);
    return text;
}

static int count(const char *text, char wanted)
{
    int found = 0;
    for (; *text; text++)
        found += *text == wanted;
    return found;
}

Test(progress, plain_lines)
{
    char *text = run(PROGRESS_LINES, 0, 1500);
    cr_assert_eq(count(text, '\n'), 21, "the first and twenty more:\n%s", text);
    cr_assert(!strchr(text, '\r') && !strchr(text, '\033'), "plain means plain");
    cr_assert(strncmp(text, "step    1/1500  loss 2.5000  80 ms/step  2:00 left\n", 51) == 0, "%s",
              text);
    cr_assert(strstr(text, "step  750/1500  loss 2.5000  80 ms/step  1:00 left\n"), "%s", text);
    cr_assert(strstr(text, "step 1500/1500  loss 2.5000  80 ms/step  0:00 left\n"), "%s", text);
    free(text);
    text = run(PROGRESS_LINES, 100, 103);
    cr_assert_eq(count(text, '\n'), 3, "%s", text);
    cr_assert(strncmp(text, "step 101/103", 12) == 0, "a resumed run: %s", text);
    free(text);
    text = run(PROGRESS_LINES, 5, 5);
    cr_assert_str_eq(text, "", "no steps, no lines");
    free(text);
}

Test(progress, a_note_has_a_line_of_its_own)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    struct progress progress;
    progress_begin(&progress, stream, PROGRESS_BAR, 0, 10);
    progress_step(&progress, 1, 2.5, 0.1);
    progress_note(&progress, "loss %d", 7);
    progress_step(&progress, 2, 2.5, 0.3);
    progress_end(&progress);
    fclose(stream);
    cr_assert(strstr(text, "\nloss 7\n\r["), "%s", text);
    cr_assert_eq(count(text, '\n'), 3, "%s", text);
    free(text);
}

Test(progress, bar)
{
    char *text = run(PROGRESS_BAR, 0, 100);
    cr_assert_eq(count(text, '\n'), 1, "one line, ended once");
    cr_assert_eq(text[strlen(text) - 1], '\n');
    int drawn = count(text, '\r');
    cr_assert(drawn > 40 && drawn < 60, "eight seconds, ten a second, every second step: %d",
              drawn);
    cr_assert(strstr(text, "%s") == NULL && strstr(text, "100/100  loss 2.5000"));
    for (const char *at = text; (at = strchr(at, '\r')); at++)
        cr_assert_leq(strcspn(at + 1, "\033\r\n"), 79, "a bar that wraps");
    free(text);
}
