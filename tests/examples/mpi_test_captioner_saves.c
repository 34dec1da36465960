/* Saves of a captioner on a slow disk. The disk is fsync, which each save calls once a file. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <mimo/log.h>

#include "train/formats/safetensors.h"
#include "captioner/training/checkpoint.h"
#include "mpi_test.h"
#include "small_run.h"

enum { PATH_BYTES = 128, DEADLINE_MS = 1000, SLOW_MS = 1300, STALL_MS = 400 };

/* Of this rank; only rank 0 writes. */
static struct {
    int64_t slow_ms; /* that each call takes */
} disk;

/* In the place of the C library's. */
int fsync(int fd)
{
    const struct timespec time = {disk.slow_ms / 1000, disk.slow_ms % 1000 * 1000000};
    if (disk.slow_ms > 0)
        nanosleep(&time, NULL);
    return fdatasync(fd);
}

typedef struct saves_bed {
    char folder[32], samples[PATH_BYTES], save[PATH_BYTES];
} saves_bed;

static void begin(saves_bed *bed)
{
    *bed = (saves_bed){.folder = "/tmp/captioner-XXXXXX"};
    if (mpi_test_rank() == 0)
        MPI_EXPECT(mkdtemp(bed->folder), "no folder %s", bed->folder);
    MPI_Bcast(bed->folder, sizeof bed->folder, MPI_CHAR, 0, MPI_COMM_WORLD);
    snprintf(bed->samples, PATH_BYTES, "%s/samples", bed->folder);
    snprintf(bed->save, PATH_BYTES, "%s/save", bed->folder);
    if (mpi_test_rank() == 0)
        MPI_EXPECT_OK(small_samples_write(bed->samples, 20));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void end(const saves_bed *bed)
{
    char text[PATH_BYTES];
    snprintf(text, sizeof text, "rm -r %s", bed->folder);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_test_rank() == 0)
        MPI_EXPECT(system(text) == 0, "%s", text);
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
    end(&bed);
}
