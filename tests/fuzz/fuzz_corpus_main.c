/* Feeds a fuzz target the files of folders, in the order of their names, as libFuzzer does with a
 * corpus, but without libFuzzer. Fails where a folder has no files. */
#include <dirent.h>
#include <errno.h>

#include "fuzz_input.h"

static int is_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void feed(const char *folder, const char *name)
{
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    FUZZ_EXPECT(length > 0 && (size_t)length < sizeof path, "the path %s is too long", path);
    FILE *file = fopen(path, "rb");
    FUZZ_EXPECT(file, "cannot open %s: %s", path, strerror(errno));
    size_t size = 0, got, room = 1 << 20;
    uint8_t *data = malloc(room);
    while (data && (got = fread(data + size, 1, room - size, file)) > 0)
        size += got;
    FUZZ_EXPECT(data && size < room, "%s is too large", path);
    fclose(file);
    uint8_t *exact = malloc(size > 0 ? size : 1); /* a sanitizer sees its end */
    FUZZ_EXPECT(exact, "out of memory for %zu bytes", size);
    memcpy(exact, data, size);
    free(data);
    fprintf(stderr, "%s\n", path); /* when the target dies, the last line says in which file */
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

int main(int argc, char **argv)
{
    int fed = 0;
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        struct dirent **entries;
        int count = scandir(argv[i], &entries, is_file, alphasort);
        FUZZ_EXPECT(count > 0, "no files in %s", argv[i]);
        for (int j = 0; j < count; j++, fed++) {
            feed(argv[i], entries[j]->d_name);
            free(entries[j]);
        }
        free(entries);
    }
    printf("%d inputs\n", fed);
    return fed > 0 ? 0 : 1;
}
