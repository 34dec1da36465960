#include "train/formats/adapter_pair.h"

#include <stdbool.h>
#include <string.h>

#include "train/formats/adapter_format.h"
#include "train/formats/safetensors_format.h"
#include "train/support/folders.h"
#include "train/support/link_target.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/unfinished_file.h"

static mimo_status hash_tensor(uint64_t *sum, const safetensors_file *file, int64_t index)
{
    const struct safetensors_tensor *tensor = safetensors_at(file, index);
    int64_t bytes, size = (int64_t)mimo_dtype_size(tensor->dtype);
    void *data;
    TRY(safetensors_bytes(&bytes, tensor));
    TRY(memory_reserve(&data, bytes, 1));
    mimo_status status = safetensors_read(file, index, 0, bytes / size, data);
    *sum += status == MIMO_OK ? adapter_tensor_hash(index, data, bytes) : 0;
    memory_release(data);
    return status;
}

mimo_status adapter_tensors_hash(adapter_hash out, const safetensors_file *file)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < safetensors_count(file); i++)
        TRY(hash_tensor(&sum, file, i));
    adapter_hash_print(out, sum);
    return MIMO_OK;
}

static mimo_status hash_file(adapter_hash out, const char *folder)
{
    char *path;
    safetensors_file *file = NULL;
    TRY(adapter_path(&path, folder, ADAPTER_TENSORS_NAME));
    mimo_status status = safetensors_open(&file, path);
    memory_release(path);
    if (status == MIMO_OK)
        status = adapter_tensors_hash(out, file);
    safetensors_close(file);
    return status;
}

/* A search for the configuration that alone has the hash of the tensors in a folder. */
typedef struct search {
    const char *folder;
    char *target;       /* where the configuration is or belongs */
    adapter_hash hash;  /* of the tensors; empty: they are not read yet */
    bool over;          /* the configuration in its place has the hash, or no tensors do */
    mimo_status status; /* only memory that is short is an error: what cannot be read is no pair */
} search;

static void note(search *of, mimo_status status)
{
    if (status == MIMO_ERR_MEMORY)
        of->status = status;
}

static bool has_hash(search *of, const char *path)
{
    struct adapter_config *config;
    mimo_status status = adapter_config_read(&config, NULL, path);
    note(of, status);
    if (status != MIMO_OK)
        return false;
    bool same = strcmp(config->tensors, of->hash) == 0;
    memory_release(config);
    return same;
}

/* Tensors are read where there is an unfinished configuration at all. */
static bool takes(void *context, const char *name)
{
    search *of = context;
    if (!of->over && !of->hash[0]) {
        mimo_status status = hash_file(of->hash, of->folder);
        note(of, status);
        of->over = status != MIMO_OK || has_hash(of, of->target);
    }
    return !of->over && has_hash(of, name);
}

static mimo_status find_beside(char **out, search *of)
{
    char *beside;
    TRY(folder_of(&beside, of->target));
    mimo_status status = unfinished_file_find(out, beside, of->target, takes, of);
    memory_release(beside);
    return status == MIMO_OK ? of->status : status;
}

/* *out is the name of that one, NULL: there is none; *target is where it belongs. */
static mimo_status find_pending(char **out, char **target, const char *folder)
{
    char *path, *found = NULL;
    search of = {.folder = folder};
    TRY(adapter_path(&path, folder, ADAPTER_CONFIG_NAME));
    mimo_status status = link_target(&of.target, path);
    memory_release(path);
    if (status == MIMO_OK)
        status = find_beside(&found, &of);
    if (status == MIMO_OK) {
        *out = found;
        *target = of.target;
        return MIMO_OK;
    }
    memory_release(found);
    memory_release(of.target);
    return status;
}

mimo_status adapter_config_path(char **out, const char *folder)
{
    char *pending = NULL, *target = NULL;
    mimo_status status = find_pending(&pending, &target, folder);
    memory_release(target);
    if (status == MIMO_ERR_IO) /* a link that no save would follow; the kernel may, for a reader */
        status = MIMO_OK;
    TRY(status);
    if (!pending)
        return adapter_path(out, folder, ADAPTER_CONFIG_NAME);
    *out = pending;
    return MIMO_OK;
}

mimo_status adapter_pair_complete(const char *folder)
{
    char *pending, *target;
    TRY(find_pending(&pending, &target, folder));
    if (pending)
        unfinished_file_adopt(pending, target);
    memory_release(pending);
    memory_release(target);
    return MIMO_OK;
}
