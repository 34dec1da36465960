/* Ranks that open different files at one path: each rank opens by itself, so a file may be replaced
 * in between, or each host has one of its own. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "captioner/training/adapter_store.h"
#include "captioner/training/checkpoint.h"
#include "mpi_test.h"
#include "shared_folder.h"
#include "small_run.h"

enum { PATH_BYTES = 256, HAND_OVER_MS = 20000 };

/* In folders 0 and 1 lie files of the same names: those of a training after one step and after two.
 */
typedef struct files_bed {
    char folder[SHARED_FOLDER];
    small_run run;
} files_bed;

static const char *path_in(char to[PATH_BYTES], const files_bed *bed, const char *below,
                           const char *name)
{
    snprintf(to, PATH_BYTES, "%s/%s/%s", bed->folder, below, name);
    return to;
}

static const char *own(void)
{
    return mpi_test_rank() == 0 ? "0" : "1";
}

static void command(const char *format, const char *folder)
{
    char text[PATH_BYTES];
    snprintf(text, sizeof text, format, folder);
    if (mpi_test_rank() == 0)
        MPI_EXPECT(system(text) == 0, "%s", text);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void write_files(files_bed *bed, const char *below)
{
    char path[PATH_BYTES];
    step_result result;
    int64_t step = below[0] - '0';
    small_run *run = &bed->run;
    MPI_EXPECT_OK(train_step(&run->trainer, step, &result));
    MPI_EXPECT_OK(checkpoint_save(path_in(path, bed, below, "saved"), &run->trainer, step + 1));
    MPI_EXPECT_OK(checkpoint_save(path_in(path, bed, below, "of-3"), &run->trainer, 3));
    MPI_EXPECT_OK(
        adapter_store_save(path_in(path, bed, below, "adapter"), &run->lora, &run->model));
    MPI_EXPECT_OK(adapter_store_save(path_in(path, bed, below, "a.lora"), &run->lora, &run->model));
}

static void begin(files_bed *bed)
{
    static char samples[PATH_BYTES];
    *bed = (files_bed){0};
    shared_folder_make(bed->folder);
    command("mkdir %1$s/0 %1$s/1", bed->folder);
    MPI_EXPECT_OK(
        small_samples_write(path_in(samples, bed, own(), "samples"), 20 + mpi_test_rank()));
    MPI_Barrier(MPI_COMM_WORLD);
    bed->run.world = mpi_test_comm();
    bed->run.options = small_options();
    bed->run.options.samples = path_in(samples, bed, "0", "samples");
    bed->run.options.lora_rank = 2;
    MPI_EXPECT_OK(small_run_build(&bed->run));
    write_files(bed, "0");
    write_files(bed, "1");
    command("sed 's/\"lora_alpha\": 16/\"lora_alpha\": 17/' -i %s/1/adapter/adapter_config.json",
            bed->folder);
    command("cp %1$s/0/saved %1$s/1/copy && cp %1$s/0/saved %1$s/0/copy", bed->folder);
}

static void end(files_bed *bed)
{
    small_run_end(&bed->run);
    shared_folder_remove(bed->folder);
}

static mimo_status load_checkpoint(files_bed *bed, const char *path)
{
    int64_t step;
    return checkpoint_load(path, &bed->run.trainer, &step);
}

static mimo_status load_base(files_bed *bed, const char *path)
{
    return checkpoint_load_base(path, &bed->run.trainer);
}

static mimo_status load_adapter(files_bed *bed, const char *path)
{
    return adapter_store_load(path, &bed->run.lora, &bed->run.model);
}

static mimo_status read_adapter_config(files_bed *bed, const char *path)
{
    struct options options = bed->run.options;
    lora_setup setup = {0};
    options.lora_rank = 0;
    options.adapter = path;
    options.lora_alpha = lora_is_v1(path) ? 16 : 0;
    mimo_status status = lora_setup_make(&setup, &options, bed->run.world);
    lora_setup_release(&setup);
    return status;
}

static mimo_status read_samples(files_bed *bed, const char *path)
{
    struct options options = bed->run.options;
    caption_data data = {0};
    options.samples = path;
    mimo_status status = caption_data_load(&data, bed->run.world, &options);
    caption_data_release(&data);
    return status;
}

typedef mimo_status loading(files_bed *bed, const char *path);

static void refused(const char *words)
{
    MPI_EXPECT_SENTENCE("is not the same file on all ranks: rank 1 has ");
    MPI_EXPECT_SENTENCE(words);
}

/* Each rank opens the file in its own folder. */
static void expect_refused(files_bed *bed, loading *load, const char *name, const char *words)
{
    char path[PATH_BYTES];
    MPI_FAILS(load(bed, path_in(path, bed, own(), name)), MIMO_ERR_MISMATCH, path);
    refused(words);
}

/* Whether another process has a file open. */
static bool has_open(int pid, const char *path)
{
    char folder[64], target[PATH_BYTES];
    bool found = false;
    snprintf(folder, sizeof folder, "/proc/%d/fd", pid);
    DIR *all = opendir(folder);
    for (struct dirent *entry; all && !found && (entry = readdir(all));) {
        ssize_t length = readlinkat(dirfd(all), entry->d_name, target, sizeof target - 1);
        target[length < 0 ? 0 : length] = '\0';
        found = strcmp(target, path) == 0;
    }
    if (all)
        closedir(all);
    return found;
}

/* Rank 0 has opened the file, and goes on with it when rank 1 comes. That one finds another file at
 * the path. */
static void expect_refused_alive(files_bed *bed, loading *load, const char *name)
{
    char live[PATH_BYTES], later[PATH_BYTES];
    int first = (int)getpid();
    path_in(later, bed, "1", name);
    path_in(live, bed, "0", name);
    MPI_Bcast(&first, 1, MPI_INT, 0, MPI_COMM_WORLD);
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int ms = 0; mpi_test_rank() == 1 && ms < HAND_OVER_MS && !has_open(first, live); ms++)
        nanosleep(&moment, NULL);
    if (mpi_test_rank() == 1)
        MPI_EXPECT(rename(later, live) == 0, "%s is not replaced", live);
    MPI_FAILS(load(bed, live), MIMO_ERR_MISMATCH, live);
    refused("It was replaced while they opened it");
    MPI_EXPECT_OK(load(bed, live)); /* the next one of both */
}

MPI_TEST(captioner_files, one_file_on_all_ranks)
{
    files_bed bed;
    char path[PATH_BYTES];
    begin(&bed);
    MPI_EXPECT_OK(load_checkpoint(&bed, path_in(path, &bed, "0", "saved")));
    MPI_EXPECT_OK(load_checkpoint(&bed, path_in(path, &bed, own(), "copy")));
    MPI_EXPECT_OK(load_adapter(&bed, path_in(path, &bed, "0", "adapter")));
    expect_refused(&bed, load_checkpoint, "saved", "rank 1 has step 2, and rank 0 has step 1.");
    expect_refused(&bed, load_checkpoint, "of-3", "rank 1 has bytes with the hash ");
    expect_refused(&bed, load_base, "saved", "rank 1 has step 2, and rank 0 has step 1.");
    expect_refused(&bed, load_adapter, "a.lora", "rank 1 has bytes with the hash ");
    expect_refused(&bed, load_adapter, "adapter", "rank 1 has bytes with the hash ");
    expect_refused(&bed, read_adapter_config, "adapter", "the configuration of the adapter");
    expect_refused(&bed, read_adapter_config, "a.lora", "rank 1 has bytes with the hash ");
    expect_refused(&bed, read_samples, "samples", "the sample file");
    if (access("/proc/self/fd", R_OK) == 0) {
        expect_refused_alive(&bed, load_checkpoint, "saved");
        expect_refused_alive(&bed, load_base, "of-3");
        expect_refused_alive(&bed, load_adapter, "a.lora");
    }
    end(&bed);
}
