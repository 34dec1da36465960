/* Rendering: the box filter by hand, every emoji of the installed font, and each failure. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "captioner/data/box_filter.h"
#include "captioner/data/emoji_list.h"
#include "captioner/data/render_module.h"
#include "captioner/data/sample_render.h"
#include "captioner/support/plugin.h"
#include "core/check.h"
#include "core/hash.h"
#include "core/memory.h"
#include "expect_failure.h"
#include "same_bits.h"
#include "skip_unless.h"

static const struct sample_source installed = {.module_folder = MODULE_FOLDER, .image_size = 32};

Test(box, means_by_hand)
{
    static const uint8_t four[16 * 3] = {
        0, 10, 255, 4,  10, 255, 100, 0, 0, 100, 0, 0, /* the 2 x 2 blocks are */
        8, 10, 255, 12, 10, 255, 100, 0, 0, 101, 0, 0, /* {6, 10, 255} {100, 0, 0} */
        1, 0,  0,   1,  0,  0,   0,   0, 9, 0,   0, 9, /* {1, 0, 0} {1, 0, 9} */
        1, 0,  0,   2,  0,  0,   2,   0, 9, 2,   0, 9,
    };
    static const uint8_t want[4 * 3] = {6, 10, 255, 100, 0, 0, 1, 0, 0, 1, 0, 9};
    uint8_t two[4 * 3], same[16 * 3];
    box_filter_rgb(two, 2, four, 4);
    EXPECT_BITS(bits_of(two, want, sizeof two, 1, 0), "2 x 2 means");
    box_filter_rgb(same, 4, four, 4);
    EXPECT_BITS(bits_of(same, four, sizeof same, 1, 0), "the same size is a copy");
    /* 3 -> 2: a target pixel covers one and a half source pixels along each axis. */
    static const uint8_t three[9 * 3] = {9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                         0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9};
    static const uint8_t cut[4 * 3] = {4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4};
    box_filter_rgb(two, 2, three, 3);
    EXPECT_BITS(bits_of(two, cut, sizeof two, 1, 0), "fractions");
}

Test(box, white_stays_white_at_every_size)
{
    static uint8_t from[SAMPLE_LARGEST_IMAGE * SAMPLE_LARGEST_IMAGE * 3];
    static uint8_t to[SAMPLE_LARGEST_IMAGE * SAMPLE_LARGEST_IMAGE * 3];
    memset(from, 0xff, sizeof from);
    for (int size = 1; size <= SAMPLE_LARGEST_IMAGE; size++) {
        memset(to, 0, sizeof to);
        box_filter_rgb(to, size, from, SAMPLE_LARGEST_IMAGE);
        for (int i = 0; i < size * size * 3; i++)
            cr_assert_eq(to[i], 0xff, "size %d, byte %d", size, i);
    }
}

static bool blank(const uint8_t *image, size_t bytes)
{
    for (size_t i = 1; i < bytes; i++)
        if (image[i] != image[0])
            return false;
    return true;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

Test(render, every_emoji_once_and_the_same_again)
{
    struct samples s = {0}, again = {0};
    SUCCEEDS(samples_render(&s, &installed));
    SUCCEEDS(samples_render(&again, &installed));
    cr_assert_eq(s.count, 3655, "%lld", (long long)s.count);
    cr_assert_eq(s.held_out_count, 141, "%lld", (long long)s.held_out_count);
    const size_t bytes = 32 * 32 * 3;
    EXPECT_BITS(bits_of(again.images, s.images, (int64_t)bytes * s.count, 1, (int64_t)bytes),
                "images rendered again (a row is an image)");
    uint64_t *hashes = calloc((size_t)s.count, sizeof *hashes);
    cr_assert(hashes);
    for (int64_t i = 0; i < s.count; i++) {
        cr_assert(!blank(sample_image(&s, i), bytes), "\"%s\" is blank", sample_name(&s, i));
        hashes[i] = mimo_hash_bytes(MIMO_HASH_START, sample_image(&s, i), bytes);
    }
    qsort(hashes, (size_t)s.count, sizeof *hashes, by_value);
    int64_t duplicates = 0;
    for (int64_t i = 1; i < s.count; i++)
        duplicates += hashes[i] == hashes[i - 1];
    cr_assert(duplicates <= 22, "%lld images equal another", (long long)duplicates);
    /* "flag: Japan" is a red disc on white: the middle is red, the corner is the white around
     * it. */
    for (int64_t i = 0; i < s.count; i++) {
        if (strcmp(sample_name(&s, i), "flag: Japan") != 0)
            continue;
        const uint8_t *corner = sample_image(&s, i), *middle = corner + (16 * 32 + 16) * 3;
        cr_assert(corner[0] == 255 && corner[1] == 255 && corner[2] == 255);
        cr_assert(middle[0] > 150 && middle[1] < 80 && middle[2] < 100, "%d %d %d: RGB or BGR?",
                  middle[0], middle[1], middle[2]);
    }
    free(hashes);
    samples_release(&s);
    samples_release(&again);
}

Test(render, cache_is_filled_once_and_follows_its_source)
{
    char folder[] = "/tmp/captioner-cache-XXXXXX", made[64], *path = NULL;
    struct stat first, second;
    struct sample_source small = {.module_folder = MODULE_FOLDER, .image_size = 8};
    cr_assert(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    SUCCEEDS(sample_cache_fill(&path, &small));
    snprintf(made, sizeof made, "%s/mimo-bridge/emoji-8.samples", folder);
    cr_assert_str_eq(path, made);
    cr_assert_eq(stat(path, &first), 0);
    mimo_release(path);
    SUCCEEDS(sample_cache_fill(&path, &small));
    cr_assert_eq(stat(path, &second), 0);
    cr_assert_eq(first.st_ino, second.st_ino, "rendered twice");
    mimo_release(path);
    small.font = "/nowhere/font.ttf";
    cr_assert_eq(sample_cache_fill(&path, &small), MIMO_ERR_NOT_FOUND,
                 "a named font must be there");
    small.font = NULL;
    cr_assert_eq(truncate(made, 1000), 0);
    cr_assert_eq(sample_cache_fill(&path, &small), MIMO_OK, "damaged: %s", mimo_last_error());
    cr_assert_eq(stat(path, &second), 0);
    cr_assert_eq(first.st_size, second.st_size, "a damaged cache is rendered again");
    mimo_release(path);
    unlink(made);
    snprintf(made, sizeof made, "%s/mimo-bridge", folder);
    rmdir(made);
    cr_assert_eq(rmdir(folder), 0, "something was left behind in %s", folder);
}

Test(render, cache_needs_a_home)
{
    char *path = NULL;
    setenv("XDG_CACHE_HOME", "relative/does/not/count", 1);
    setenv("HOME", "/home/someone", 1);
    SUCCEEDS(sample_cache_path(&path, &installed));
    cr_assert_str_eq(path, "/home/someone/.cache/mimo-bridge/emoji-32.samples");
    mimo_release(path);
    struct sample_source named = installed, other = installed;
    char *path_other = NULL;
    named.names = "de.txt";
    other.names = "fr.txt";
    SUCCEEDS(sample_cache_path(&path, &named));
    SUCCEEDS(sample_cache_path(&path_other, &other));
    cr_assert_eq(strlen(path), strlen("/home/someone/.cache/mimo-bridge/emoji-32-.samples") + 16);
    cr_assert_str_neq(path, path_other, "two languages would share a cache");
    mimo_release(path);
    mimo_release(path_other);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    FAILS(sample_cache_path(&path, &installed), MIMO_ERR_NOT_FOUND, "--samples");
}

static void expect(const struct sample_source *source, mimo_status status, const char *part)
{
    struct samples s = {.count = -7};
    cr_assert_eq(samples_render(&s, source), status, "%s: %s", part, mimo_last_error());
    cr_assert(strstr(mimo_last_error(), part), "%s", mimo_last_error());
    cr_assert(!strchr(mimo_last_error(), '\n'), "one sentence: %s", mimo_last_error());
    cr_assert_eq(s.count, -7, "a failed call leaves its output");
}

/* The first `bytes` bytes of the installed font. */
static void cut_font(char *path, size_t bytes)
{
    FILE *from = fopen(SAMPLE_FONT_DEFAULT_PATH, "rb");
    int fd = mkstemp(path);
    cr_assert(from && fd >= 0);
    char *data = malloc(bytes);
    cr_assert_eq(fread(data, 1, bytes, from), bytes);
    cr_assert_eq(write(fd, data, bytes), (ssize_t)bytes);
    free(data);
    close(fd);
    fclose(from);
}

Test(render, each_failure_has_its_sentence)
{
    struct sample_source source = installed;
    source.font = "/nowhere/font.ttf";
    expect(&source, MIMO_ERR_NOT_FOUND, "/nowhere/font.ttf");
    source.font = EMOJI_LIST_DEFAULT_PATH;
    expect(&source, MIMO_ERR_IO, "no TrueType or OpenType font");
    source.font = "/tmp";
    expect(&source, MIMO_ERR_IO, "the font /tmp is no ordinary file");
    static const size_t cuts[] = {0, 11, 100, 5000, 1000000, 10000000};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        char cut[] = "/tmp/captioner-font-XXXXXX";
        cut_font(cut, cuts[i]);
        source.font = cut;
        expect(&source, MIMO_ERR_IO, cuts[i] < 12 ? "no TrueType" : "cut short: its tables reach");
        unlink(cut);
    }
    source = installed;
    source.emoji_test = "/nowhere/emoji-test.txt";
    expect(&source, MIMO_ERR_NOT_FOUND, "/nowhere/emoji-test.txt");
    source = installed;
    source.image_size = 200;
    expect(&source, MIMO_ERR_ARGUMENT, "8 to 136 pixels a side, not 200");
}

/* Nobody ever writes into it. */
Test(render, a_pipe_is_no_font, .timeout = 10)
{
    struct sample_source source = installed;
    char pipe[] = "/tmp/captioner-font-XXXXXX";
    close(mkstemp(pipe));
    unlink(pipe);
    cr_assert_eq(mkfifo(pipe, 0600), 0);
    source.font = pipe;
    expect(&source, MIMO_ERR_IO, "is no ordinary file");
    unlink(pipe);
}

Test(render, a_font_without_colour)
{
    struct sample_source source = installed;
    source.font = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf";
    if (access(source.font, R_OK) != 0)
        cr_skip_test("no fonts-dejavu-core");
    expect(&source, MIMO_ERR_UNSUPPORTED, "has no colour bitmaps");
}

/* Write the file at `path`, or a new one where it ends with XXXXXX. */
static void write_text(char *path, const char *text)
{
    int fd = strstr(path, "XXXXXX") ? mkstemp(path) : open(path, O_WRONLY | O_TRUNC);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

Test(render, other_names_for_the_same_pictures)
{
    char list[] = "/tmp/captioner-list-XXXXXX", names[] = "/tmp/captioner-names-XXXXXX";
    struct sample_source source = {
        .module_folder = MODULE_FOLDER, .image_size = 8, .emoji_test = list};
    struct samples english = {0}, german = {0};
    write_text(list, "1F600 ; fully-qualified # x E1.0 one\n1F98A ; fully-qualified # x E1.0 two\n"
                     "1F431 ; fully-qualified # x E1.0 three two\n#EOF\n");
    write_text(names, "1F431\tK\xc3\xa4tzchen\n1F600\tGesicht\n");
    SUCCEEDS(samples_render(&english, &source));
    source.names = names;
    SUCCEEDS(samples_render(&german, &source));
    cr_assert(english.count == 3 && german.count == 2);
    cr_assert_str_eq(sample_name(&german, 1), "K\xc3\xa4tzchen");
    cr_assert_eq(german.name_length[1], 9);
    cr_assert(german.held_out[1] && english.held_out[2] && english.held_out_count == 1);
    EXPECT_BITS(bits_of(sample_image(&german, 1), sample_image(&english, 2), 8 * 8 * 3, 1, 0),
                "the cat is drawn where its name is");
    samples_release(&english);
    samples_release(&german);
    /* The cache follows the names. */
    char folder[] = "/tmp/captioner-cache-XXXXXX", *path = NULL;
    cr_assert(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    SUCCEEDS(sample_cache_fill(&path, &source));
    mimo_release(path);
    write_text(names, "1F431\tKatze\n");
    SUCCEEDS(sample_cache_fill(&path, &source));
    SUCCEEDS(sample_file_read(&german, path));
    cr_assert_eq(german.count, 1, "the old names are still in the cache");
    samples_release(&german);
    unlink(names);
    cr_assert_eq(sample_cache_fill(&path, &source), MIMO_ERR_NOT_FOUND,
                 "named names must be there");
    unlink(path);
    mimo_release(path);
    unlink(list);
    char made[64];
    snprintf(made, sizeof made, "%s/mimo-bridge", folder);
    rmdir(made);
    cr_assert_eq(rmdir(folder), 0, "something was left behind in %s", folder);
}

static void expect_with_list(const char *text, const char *part)
{
    char path[] = "/tmp/captioner-list-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    struct sample_source source = installed;
    source.emoji_test = path;
    expect(&source, MIMO_ERR_NOT_FOUND, part);
    unlink(path);
}

Test(render, missing_glyphs)
{
    expect_with_list("4E00 ; fully-qualified # x E1.0 one\n#EOF\n", "no glyph for U+4E00");
    expect_with_list("1F600 1F600 ; fully-qualified # x E1.0 two\n#EOF\n",
                     "draws U+1F600 U+1F600 with 2 glyphs");
}

Test(render, missing_module)
{
    struct sample_source source = installed;
    source.module_folder = "/nowhere";
    expect(&source, MIMO_ERR_UNSUPPORTED, "libfreetype-dev and libharfbuzz-dev");
    struct plugin plugin = {.handle = NULL};
    const struct plugin_name name = {"no-such-module.so", "symbol", 1, "package"};
    FAILS(plugin_open(&plugin, &name, NULL), MIMO_ERR_UNSUPPORTED,
          "no-such-module.so is neither in /");
    cr_assert_null(plugin.handle);
}

Test(render, a_module_that_does_not_load)
{
    char folder[] = "/tmp/captioner-module-XXXXXX", file[64];
    cr_assert(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/captioner-render.so", folder);
    FILE *module = fopen(file, "w");
    cr_assert(module);
    fputs("not a module", module);
    fclose(module);
    struct sample_source source = installed;
    source.module_folder = folder;
    expect(&source, MIMO_ERR_UNSUPPORTED, "cannot load ");
    unlink(file);
    rmdir(folder);
    struct plugin plugin = {.handle = NULL};
    struct plugin_name name = {"captioner-render.so", "no_such_symbol", 1, "package"};
    FAILS(plugin_open(&plugin, &name, MODULE_FOLDER), MIMO_ERR_UNSUPPORTED,
          "no symbol no_such_symbol");
    name.symbol = RENDER_MODULE_SYMBOL;
    name.version = 99;
    FAILS(plugin_open(&plugin, &name, MODULE_FOLDER), MIMO_ERR_UNSUPPORTED,
          "has version 1, this program needs 99");
}

/* A machine without the font or the module skips visibly. */
int main(int argc, char *argv[])
{
    static const char *const needed[] = {SAMPLE_FONT_DEFAULT_PATH, EMOJI_LIST_DEFAULT_PATH,
                                         MODULE_FOLDER "/captioner-render.so"};
    return run_unless_missing(argc, argv, needed, 3);
}
