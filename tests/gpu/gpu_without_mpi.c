/*
 * Ranks on GPUs without MPI, as a launcher of another kind starts them:
 *
 *   gpu_without_mpi RANKS
 *
 * It forks the ranks, one for each GPU. Their bootstrap is a store of files in a folder of its own.
 * Each rank makes a bridge over NCCL, whose self-test goes forward and backward. The exit status is
 * 77 where there are fewer GPUs, unless NCCL_MULTI_RANK_GPU_ENABLE lets ranks share one. It may
 * include public headers only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime_api.h>
#include <mimo/mimo.h>
#include <mimo/nccl.h>

enum { MOST_RANKS = 64, SKIPPED = 77, PATIENCE_S = 60, PATH = 256 };

/* What a rank puts in a round is one file: its name appears when it is whole. */
typedef struct file_store {
    const char *folder;
    int rank, size, round;
} file_store;

static void name_file(char *out, const file_store *store, const char *kind, int rank)
{
    snprintf(out, PATH, "%s/%s.%d.%d", store->folder, kind, store->round, rank);
}

static bool put(const file_store *store, const void *data, size_t bytes)
{
    char unfinished[PATH], path[PATH];
    name_file(unfinished, store, "unfinished", store->rank);
    name_file(path, store, "data", store->rank);
    FILE *file = fopen(unfinished, "wb");
    bool written = file && fwrite(data, 1, bytes, file) == bytes;
    if (file && fclose(file) != 0)
        written = false;
    return written && rename(unfinished, path) == 0;
}

static bool get(const file_store *store, int rank, void *data, size_t bytes)
{
    const struct timespec pause = {0, 1000000};
    const time_t end = time(NULL) + PATIENCE_S;
    char path[PATH];
    name_file(path, store, "data", rank);
    FILE *file = fopen(path, "rb");
    while (!file && time(NULL) < end) {
        nanosleep(&pause, NULL);
        file = fopen(path, "rb");
    }
    if (!file)
        return false;
    bool read = fread(data, 1, bytes, file) == bytes;
    fclose(file);
    return read;
}

static int gather(void *context, void *to, const void *from, size_t bytes)
{
    file_store *store = context;
    bool done = put(store, from, bytes);
    for (int rank = 0; rank < store->size && done; rank++)
        done = get(store, rank, (char *)to + (size_t)rank * bytes, bytes);
    store->round++;
    return done ? 0 : 1;
}

/* A bridge from dp = size to cp = size, forward and backward. */
static mimo_status cross(mimo_comm *comm, int size)
{
    char dims[64];
    mimo_grid *encoder = NULL, *llm = NULL;
    mimo_bridge *bridge = NULL;
    mimo_partition_rule zigzag = MIMO_PARTITION_RULE_INIT;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    snprintf(dims, sizeof dims, "tp=1,dp=%d", size);
    mimo_status status = mimo_grid_create_text(&encoder, dims, 0);
    snprintf(dims, sizeof dims, "tp=1,cp=%d,dp=1", size);
    if (status == MIMO_OK)
        status = mimo_grid_create_text(&llm, dims, 0);
    desc.src = encoder;
    desc.dst = llm;
    desc.partition = &zigzag;
    if (status == MIMO_OK)
        status = mimo_bridge_create(&bridge, comm, &desc);
    if (status == MIMO_OK)
        status = mimo_bridge_self_test(bridge, 7);
    mimo_bridge_destroy(bridge);
    mimo_grid_destroy(llm);
    mimo_grid_destroy(encoder);
    return status;
}

static int run_rank(file_store *store)
{
    int gpus = 0;
    mimo_comm *comm;
    const mimo_nccl_desc desc = MIMO_NCCL_DESC_INIT;
    const mimo_bootstrap bootstrap = {sizeof bootstrap, store->rank, store->size, gather, store};
    int needed = getenv("NCCL_MULTI_RANK_GPU_ENABLE") ? 1 : store->size;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < needed) {
        printf("%d GPUs for %d ranks\n", gpus, store->size);
        return SKIPPED;
    }
    mimo_status status = mimo_comm_create_nccl(&comm, &bootstrap, &desc);
    if (status == MIMO_OK) {
        status = cross(comm, store->size);
        mimo_comm_destroy(comm);
    }
    printf("rank %d of %d: %s\n", store->rank, store->size,
           status == MIMO_OK ? "the bridge passes its self-test" : mimo_last_error());
    return status == MIMO_OK ? 0 : 1;
}

static void remove_files(file_store *store, int rounds)
{
    char path[PATH];
    for (store->round = 0; store->round < rounds; store->round++)
        for (int rank = 0; rank < store->size; rank++) {
            name_file(path, store, "data", rank);
            unlink(path);
            name_file(path, store, "unfinished", rank);
            unlink(path);
        }
    rmdir(store->folder);
}

int main(int argc, char **argv)
{
    enum { MOST_ROUNDS = 8 };
    char folder[] = "/tmp/mimo-store-XXXXXX";
    file_store store = {.folder = folder, .size = argc == 2 ? atoi(argv[1]) : 0};
    pid_t ranks[MOST_RANKS];
    int worst = 0;
    if (store.size < 1 || store.size > MOST_RANKS || !mkdtemp(folder)) {
        fprintf(stderr, "usage: gpu_without_mpi RANKS (1 to %d)\n", MOST_RANKS);
        return 2;
    }
    for (store.rank = 0; store.rank < store.size; store.rank++) {
        ranks[store.rank] = fork(); /* before the first call of CUDA */
        if (ranks[store.rank] == 0) {
            int code = run_rank(&store);
            fflush(stdout);
            _exit(code);
        }
    }
    for (int rank = 0; rank < store.size; rank++) {
        int how = 0;
        bool ended = ranks[rank] > 0 && waitpid(ranks[rank], &how, 0) == ranks[rank];
        int code = ended && WIFEXITED(how) ? WEXITSTATUS(how) : 1;
        if (code != 0 && worst != 1)
            worst = code;
    }
    remove_files(&store, MOST_ROUNDS);
    return worst;
}
