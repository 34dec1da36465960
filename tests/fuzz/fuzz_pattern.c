/* Patterns of layers, and names of tensors by whatever is accepted. Input: stages (a byte), the
 * pattern, a line feed, a name. */
#include <inttypes.h>

#include "core/memory.h"
#include "fuzz_input.h"
#include "schedule/pattern_keys.h"

/* Segments follow one another and are all of the pattern. */
static void walk_segments(const mimo_pattern *pattern, int64_t pp)
{
    mimo_pattern_segment *segments = NULL;
    int64_t chunks, layer = 0, item = 0;
    if (mimo_pattern_cut(&segments, &chunks, pattern, pp) != MIMO_OK) {
        FUZZ_EXPECT(!segments && *mimo_last_error(), "a failure without a sentence");
        return;
    }
    for (int64_t i = 0; i < chunks * pp; i++) {
        FUZZ_EXPECT(segments[i].begin == layer && segments[i].first_item == item,
                    "segment %" PRId64 " from layer %" PRId64, i, segments[i].begin);
        layer = segments[i].end;
        item = segments[i].end_item;
    }
    FUZZ_EXPECT(layer == pattern->count && item == pattern->items, "%" PRId64 " layers", layer);
    mimo_pattern_release_cut(segments);
}

/* A name that came back from a form goes to the same name there. */
static void rename_both_ways(const mimo_pattern *pattern, const char *name, mimo_key_form form)
{
    mimo_pattern_key key = {.place = -1}, there, back;
    memcpy(key.text, name, strnlen(name, sizeof key.text - 1));
    if (mimo_pattern_rename(&there, pattern, MIMO_KEYS_OF_LAYERS, form, &key) != MIMO_OK ||
        *there.text == '\0' ||
        mimo_pattern_rename(&back, pattern, form, MIMO_KEYS_OF_LAYERS, &there) != MIMO_OK)
        return;
    mimo_pattern_key again;
    FUZZ_EXPECT(mimo_pattern_rename(&again, pattern, MIMO_KEYS_OF_LAYERS, form, &back) == MIMO_OK,
                "%s came back as %s", key.text, back.text);
    FUZZ_EXPECT(strcmp(again.text, there.text) == 0 && again.place == there.place, "%s became %s",
                there.text, again.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {data, size};
    mimo_pattern *pattern = NULL;
    int64_t pp = fuzz_number(&input, 0, 9);
    char *text = calloc(input.size + 1, 1);
    FUZZ_EXPECT(text, "out of memory");
    memcpy(text, input.data, input.size);
    size_t length = strcspn(text, "\n");
    const char *name = text[length] ? text + length + 1 : "";
    text[length] = '\0';
    if (mimo_pattern_create(&pattern, text) == MIMO_OK) {
        walk_segments(pattern, pp);
        rename_both_ways(pattern, name, MIMO_KEYS_OF_ITEMS);
        rename_both_ways(pattern, name, MIMO_KEYS_OF_GPT);
    } else {
        FUZZ_EXPECT(!pattern && *mimo_last_error(), "a failure without a sentence");
    }
    mimo_pattern_destroy(pattern);
    free(text);
    return 0;
}
