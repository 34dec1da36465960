/* A run that is resumed from a damaged checkpoint is refused with a sentence, or resumed. The input
 * is a byte, then edits of a sound checkpoint of a tiny model. Each edit is an offset (2 bytes) and
 * a byte. The first byte chooses whether the edits fall into the header or anywhere, and whether
 * the file is truncated. */
#include <inttypes.h>
#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mimo/mpi.h>

#include "train/support/little_endian.h"
#include "captioner/training/checkpoint.h"
#include "fuzz_input.h"

/* Lives as long as the process. */
static struct {
    mimo_comm *world;
    rank_topology topology;
    bridged_model model;
    step_trainer trainer;
    batch_item item;
    uint8_t *saved; /* saved[size], the sound checkpoint */
    size_t size, header;
} run;

static void must(mimo_status status, const char *what)
{
    FUZZ_EXPECT(status == MIMO_OK, "%s", what);
}

static void build(void)
{
    model_desc model = {.hidden = 2,
                        .heads = 1,
                        .encoder_layers = 1,
                        .llm_layers = 1,
                        .tokens = 1,
                        .patch_values = PATCH_VALUES,
                        .words = CAPTION_WORDS,
                        .seq = 4,
                        .micro_batch = 1,
                        .seed = 1,
                        .bridge_dtype = MIMO_F32};
    trainer_desc trainer = {
        .items = &run.item, .samples = 1, .steps = 1, .global_batch = 1, .seed = 1, .lr = 0.01};
    must(mimo_comm_create_mpi(&run.world, MPI_COMM_WORLD, NULL), "communicator");
    const topology_desc grids = {.encoder = "tp=1,dp=1", .llm = "tp=1,cp=1,dp=1"};
    must(topology_create(&run.topology, run.world, &grids), "topology");
    must(model_create(&run.model, &run.topology, &model), "model");
    must(trainer_create(&run.trainer, &run.model, &trainer), "trainer");
}

static void read_saved(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat found;
    FUZZ_EXPECT(file && fstat(fileno(file), &found) == 0, "no checkpoint at %s", path);
    run.size = (size_t)found.st_size;
    run.saved = malloc(run.size);
    FUZZ_EXPECT(run.saved && fread(run.saved, 1, run.size, file) == run.size, "not read");
    fclose(file);
    run.header = 8 + (size_t)get_little_endian(run.saved, 8);
}

/* A function of LeakSanitizer, where the program has it. Open MPI keeps memory until the process
 * ends. That is no leak of ours, and its stacks are too broken for a suppression. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char folder[] = "/tmp/mimo-fuzz-XXXXXX", path[64];
    if (__lsan_disable)
        __lsan_disable();
    MPI_Init(argc, argv);
    if (__lsan_enable)
        __lsan_enable();
    build();
    FUZZ_EXPECT(mkdtemp(folder), "no folder %s", folder);
    snprintf(path, sizeof path, "%s/saved", folder);
    must(checkpoint_save(path, &run.trainer, 1), "save");
    read_saved(path);
    remove(path);
    rmdir(folder);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    fuzz_input input = {data, size};
    int64_t step = -1;
    uint8_t choice = fuzz_byte(&input);
    uint8_t *bytes = malloc(run.size);
    FUZZ_EXPECT(bytes, "out of memory");
    memcpy(bytes, run.saved, run.size);
    size_t kept = choice & 2 ? (size_t)(uint32_t)fuzz_word(&input) % (run.size + 1) : run.size;
    size_t range = choice & 1 ? run.size : run.header;
    while (input.size >= 3) {
        size_t place = fuzz_byte(&input);
        place |= (size_t)fuzz_byte(&input) << 8;
        bytes[place % range] = fuzz_byte(&input);
    }
    bool same = kept == run.size && memcmp(bytes, run.saved, run.size) == 0;
    int fd = fuzz_file(path, bytes, kept);
    mimo_status status = checkpoint_load(path, &run.trainer, &step);
    FUZZ_EXPECT(status != MIMO_OK || step >= 0, "resumed at step %" PRId64, step);
    FUZZ_EXPECT(status == MIMO_OK || (*mimo_last_error() && step == -1),
                "a failure without a sentence");
    FUZZ_EXPECT(!same || status == MIMO_OK, "the sound checkpoint is refused");
    close(fd);
    free(bytes);
    return 0;
}
