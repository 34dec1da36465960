/* Saves of a captioner on a disk that is slow, full for a while or full for good, and signals that
 * come while the last one is written. The disk is fsync, which each save calls once a file. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <mimo/log.h>

#include "train/formats/safetensors.h"
#include "captioner/training/checkpoint.h"
#include "captioner/training/training_run.h"
#include "mpi_test.h"
#include "shared_folder.h"
#include "small_run.h"

enum { PATH_BYTES = 128, WORDS = 48, DEADLINE_MS = 1000, SLOW_MS = 1300, STALL_MS = 400 };

/* Of this rank; only rank 0 writes. */
static struct {
    int calls;       /* so far */
    int full;        /* the number of calls that fail */
    int raised;      /* the signal that comes in the first call; 0: none */
    int64_t slow_ms; /* that each call takes */
} disk;

/* In the place of the C library's. */
int fsync(int fd)
{
    const struct timespec time = {disk.slow_ms / 1000, disk.slow_ms % 1000 * 1000000};
    if (disk.slow_ms > 0)
        nanosleep(&time, NULL);
    if (disk.calls++ == 0 && disk.raised)
        raise(disk.raised);
    if (disk.calls > disk.full)
        return fdatasync(fd);
    errno = ENOSPC;
    return -1;
}

typedef struct saves_bed {
    char folder[SHARED_FOLDER], samples[PATH_BYTES], save[PATH_BYTES], adapter[PATH_BYTES];
} saves_bed;

static void begin(saves_bed *bed)
{
    shared_folder_make(bed->folder);
    snprintf(bed->samples, PATH_BYTES, "%s/samples", bed->folder);
    snprintf(bed->save, PATH_BYTES, "%s/save", bed->folder);
    snprintf(bed->adapter, PATH_BYTES, "%s/adapter", bed->folder);
    if (mpi_test_rank() == 0)
        MPI_EXPECT_OK(small_samples_write(bed->samples, 20));
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Four steps of a small run, with these words behind its own. */
static mimo_status train(const saves_bed *bed, const char *const *more)
{
    const char *words[WORDS] = {
        "captioner",
        "--encoder",
        "tp=2,dp=1",
        "--llm",
        "tp=1,cp=2,dp=1",
        "--image-size",
        "8",
        "--hidden",
        "8",
        "--heads",
        "2",
        "--layers",
        "1,1",
        "--seq",
        "4",
        "--steps",
        "4",
        "--samples",
        bed->samples,
        "--save",
        bed->save,
        "--lr",
        "0.01",
        "--global-batch",
        "4",
    };
    struct options options;
    int count = 0;
    while (words[count])
        count++;
    for (; more && *more; more++)
        words[count++] = *more;
    mimo_status status = options_parse(&options, count, (char **)words);
    return status == MIMO_OK ? training_run(&options, mpi_test_comm()) : status;
}

/* The step of the checkpoint, of the same small run; -1: there is none. */
static int64_t step_saved(const saves_bed *bed)
{
    safetensors_file *file = NULL;
    if (safetensors_open(&file, bed->save) != MIMO_OK)
        return -1;
    const char *text = safetensors_metadata(file, "step");
    int64_t step = text ? strtoll(text, NULL, 10) : -1;
    safetensors_close(file);
    return step;
}

static void expect_saved(const saves_bed *bed, int64_t step)
{
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t found = step_saved(bed);
    MPI_EXPECT(found == step, "step %lld is saved, not %lld", (long long)found, (long long)step);
    MPI_Barrier(MPI_COMM_WORLD);
}

static char warned[1024];

static void keep_warning(void *context, mimo_log_level level, const char *text)
{
    (void)context;
    if (level == MIMO_LOG_WARNING)
        snprintf(warned, sizeof warned, "%s", text);
}

/* A wait for a save is no wait for a missing rank. */
MPI_TEST(captioner_saves, on_a_slow_disk)
{
    saves_bed bed;
    char line[256];
    mimo_comm_desc desc = MIMO_COMM_DESC_INIT;
    small_run run = {.options = small_options()};
    begin(&bed);
    desc.stall = STALL_MS;
    MPI_EXPECT_OK(mimo_comm_create_mpi(&run.world, MPI_COMM_WORLD, &desc));
    run.options.samples = bed.samples;
    MPI_EXPECT_OK(small_run_build(&run));
    mimo_log_set(keep_warning, NULL);
    disk.slow_ms = SLOW_MS;
    MPI_EXPECT_OK(mimo_comm_barrier(run.world));
    MPI_EXPECT_OK(mimo_comm_set_deadline(run.world, DEADLINE_MS));
    MPI_EXPECT_OK(checkpoint_save(bed.save, &run.trainer, 1));
    int64_t deadline = mimo_comm_deadline(run.world);
    MPI_EXPECT(deadline == DEADLINE_MS, "the deadline is %lld", (long long)deadline);
    MPI_EXPECT_OK(mimo_comm_set_deadline(run.world, 0));
    disk.slow_ms = 0;
    mimo_log_set(NULL, NULL);
    snprintf(line, sizeof line, "save of %s: rank 1 of 2 has waited ", bed.save);
    MPI_EXPECT(mpi_test_rank() != 1 || strstr(warned, line), "no \"%s\" in \"%s\"", line, warned);
    expect_saved(&bed, 1);
    small_run_end(&run);
    mimo_comm_destroy(run.world);
    shared_folder_remove(bed.folder);
}

static mimo_status train_on_a_full_disk(const saves_bed *bed, int full, const char *const *more)
{
    disk.calls = 0;
    disk.full = full;
    mimo_status status = train(bed, more);
    disk.full = 0;
    return status;
}

/* The saves after steps 1, 2 and 3 fail. Then all do, and an earlier checkpoint stays. */
MPI_TEST(captioner_saves, on_a_full_disk)
{
    static const char *const each[] = {"--save-every", "1", NULL};
    saves_bed bed;
    char words[256];
    begin(&bed);
    MPI_EXPECT_OK(train_on_a_full_disk(&bed, 3, each));
    expect_saved(&bed, 4);
    const char *const on[] = {"--save-every", "1", "--resume", bed.save, "--steps", "6", NULL};
    MPI_EXPECT_STATUS(train_on_a_full_disk(&bed, 100, on), MIMO_ERR_IO);
    snprintf(
        words, sizeof words,
        "No space left on device. The model after step 6 is lost: for --resume, %s is as it was "
        "before this run",
        bed.save);
    MPI_EXPECT_SENTENCE(words);
    expect_saved(&bed, 4);
    shared_folder_remove(bed.folder);
}

/* Of what a run leaves, one that cannot be written costs none of the others. */
MPI_TEST(captioner_saves, the_others_are_saved)
{
    saves_bed bed;
    char adapter[PATH_BYTES + 32];
    begin(&bed);
    const char *const more[] = {"--lora-rank", "2", "--adapter-out", bed.adapter, NULL};
    MPI_FAILS(train_on_a_full_disk(&bed, 1, more), MIMO_ERR_IO,
              "The model after step 4 is lost: for --resume, there is no ");
    snprintf(adapter, sizeof adapter, "%s/adapter_config.json", bed.adapter);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_EXPECT(access(adapter, F_OK) == 0, "there is no %s", adapter);
    expect_saved(&bed, -1);
    shared_folder_remove(bed.folder);
}

/* Behind the last step, where no save point listens any more. */
MPI_TEST(captioner_saves, a_signal_in_the_last_save)
{
    static const int signals[] = {SIGTERM, SIGINT};
    saves_bed bed;
    begin(&bed);
    for (int i = 0; i < 2; i++) {
        disk.calls = 0;
        disk.raised = signals[i];
        MPI_FAILS(train(&bed, NULL), MIMO_ERR_ABORTED,
                  i == 0 ? "rank 0: SIGTERM ended the run" : "rank 0: SIGINT ended",
                  "What it was to save after step 4 is saved");
        disk.raised = 0;
        expect_saved(&bed, 4);
    }
    shared_folder_remove(bed.folder);
}
