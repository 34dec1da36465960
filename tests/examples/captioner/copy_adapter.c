/* Reads the adapter in one folder and writes it into another: copy_adapter FROM TO. The model is
 * whatever the file holds. For test_adapter_python.py. */
#include <stdio.h>
#include <string.h>

#include "train/formats/adapter_file.h"
#include "train/formats/adapter_format.h"
#include "train/formats/safetensors.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"

/* The tensors of a file, named without the prefix. The names are the file's. */
static mimo_status list_tensors(struct adapter_tensors *out, const safetensors_file *file)
{
    struct adapter_tensor *list;
    TRY(memory_reserve(&list, safetensors_count(file), sizeof *list));
    *out = (struct adapter_tensors){list, safetensors_count(file)};
    for (int64_t i = 0; i < out->count; i++) {
        const struct safetensors_tensor *tensor = safetensors_at(file, i);
        bool prefixed = strncmp(tensor->name, ADAPTER_PREFIX, strlen(ADAPTER_PREFIX)) == 0;
        CHECK(tensor->ndim == 2, MIMO_ERR_IO, "%s has %d dimensions", tensor->name, tensor->ndim);
        list[i].name = tensor->name + (prefixed ? strlen(ADAPTER_PREFIX) : 0);
        memcpy(list[i].shape, tensor->shape, sizeof list[i].shape);
    }
    return MIMO_OK;
}

/* Row by row, as a rank that holds a part of the columns would read. */
static mimo_status copy_tensors(adapter_writer *to, const adapter_file *from,
                                const struct adapter_tensors *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        int64_t rows = list->tensors[i].shape[0], width = list->tensors[i].shape[1];
        float *whole;
        TRY(memory_reserve(&whole, rows * width, sizeof *whole));
        mimo_status status = MIMO_OK;
        for (int64_t row = 0; row < rows && status == MIMO_OK; row++)
            status = adapter_read(from, i, row * width, width, whole + row * width);
        if (status == MIMO_OK)
            status = adapter_write(to, i, whole);
        memory_release(whole);
        TRY(status);
    }
    return MIMO_OK;
}

/* What is opened stays, and ends with the process. */
static mimo_status copy(const char *from, const char *to)
{
    static struct adapter_config *config;
    static struct adapter_tensors list;
    static safetensors_file *names;
    static adapter_file *file;
    static adapter_writer *writer;
    static char *path;
    TRY(adapter_read_config(&config, NULL, from));
    TRY(adapter_path(&path, from, ADAPTER_TENSORS_NAME));
    TRY(safetensors_open(&names, path));
    TRY(list_tensors(&list, names));
    TRY(adapter_open(&file, from, config, &list));
    TRY(adapter_create(&writer, to, config, &list));
    TRY(copy_tensors(writer, file, &list));
    return adapter_commit(writer);
}

int main(int argc, char **argv)
{
    if (argc == 3 && copy(argv[1], argv[2]) == MIMO_OK)
        return 0;
    fprintf(stderr, "copy_adapter: %s\n", argc == 3 ? mimo_last_error() : "FROM TO");
    return 1;
}
