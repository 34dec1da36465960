/* The pictures are read back as PNG. The tests look where the layout puts something. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <png.h>

#include "captioner/pictures/pictures.h"
#include "core/check.h"
#include "core/hash.h"
#include "own_folder.h"
#include "skip_unless.h"

enum { SIDE = 32, PIXELS = SIDE * SIDE * 3, CELLS = 10, STEPS = 400 };

OWN_FOLDER(pictures, "x.png", .timeout = 60);

struct picture {
    png_image png;
    unsigned char *pixels; /* RGB */
};

static struct picture load(void)
{
    struct picture picture = {.png = {.version = PNG_IMAGE_VERSION}};
    cr_assert(png_image_begin_read_from_file(&picture.png, path), "%s", picture.png.message);
    picture.png.format = PNG_FORMAT_RGB;
    picture.pixels = malloc(PNG_IMAGE_SIZE(picture.png));
    cr_assert(picture.pixels);
    cr_assert(png_image_finish_read(&picture.png, NULL, picture.pixels, 0, NULL), "%s",
              picture.png.message);
    return picture;
}

/* The number of pixels of exactly this colour. */
static int64_t count(const struct picture *picture, int red, int green, int blue)
{
    int64_t found = 0, pixels = (int64_t)picture->png.width * picture->png.height;
    for (int64_t i = 0; i < pixels; i++) {
        const unsigned char *p = picture->pixels + 3 * i;
        found += p[0] == red && p[1] == green && p[2] == blue;
    }
    return found;
}

/* Ten images of one unusual colour each, except for one pixel of another. */
static struct contact_sheet example_sheet(uint8_t images[CELLS][PIXELS],
                                          struct contact_cell cells[CELLS])
{
    for (int i = 0; i < CELLS; i++) {
        for (int p = 0; p < SIDE * SIDE; p++) {
            images[i][3 * p] = (uint8_t)(40 + i);
            images[i][3 * p + 1] = 200;
            images[i][3 * p + 2] = 7;
        }
        memcpy(images[i] + 3 * (5 * SIDE + 9), "\x03\x09\xee", 3);
        cells[i] = (struct contact_cell){images[i], "grinning face", "grinning face", NULL};
    }
    return (struct contact_sheet){"Title", "subtitle", SIDE, CELLS, cells, NULL};
}

Test(pictures, contact_sheet_has_every_image_in_crisp_pixels)
{
    static uint8_t images[CELLS][PIXELS];
    struct contact_cell cells[CELLS];
    struct contact_sheet sheet = example_sheet(images, cells);
    SUCCEEDS(picture_contact_sheet(path, &sheet, MODULE_FOLDER));
    struct picture picture = load();
    cr_assert(picture.png.width > 5 * 256 && picture.png.height > 2 * 256);
    /* 128 points at two pixels a point for 32 pixels: 8 x 8 for each. */
    for (int i = 0; i < CELLS; i++)
        cr_assert_eq(count(&picture, 40 + i, 200, 7), 64 * (SIDE * SIDE - 1), "image %d", i);
    cr_assert_eq(count(&picture, 3, 9, 0xee), 64 * CELLS);
    cr_assert_gt(count(&picture, 0x1d, 0x7d, 0x46), 100, "no green for a right name");
    cr_assert_eq(count(&picture, 0xb3, 0x41, 0x2e), 0, "red for a right name");
    free(picture.pixels);
}

/* Some words of a name are better than none. */
Test(pictures, contact_sheet_has_three_verdicts)
{
    static uint8_t images[CELLS][PIXELS];
    static const struct {
        const char *generated;
        bool green, amber, red;
    } cases[] = {{"grinning face", true, false, false},
                 {"a face", false, true, false},
                 {"face", false, true, false},
                 {"grinning faces", false, true, false},
                 {"faces grinning face", false, true, false},
                 {"grin facet", false, false, true},
                 {"", false, false, true}};
    struct contact_cell cells[CELLS];
    struct contact_sheet sheet = example_sheet(images, cells);
    sheet.count = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cells[0].generated = cases[i].generated;
        SUCCEEDS(picture_contact_sheet(path, &sheet, MODULE_FOLDER));
        struct picture picture = load();
        cr_assert_eq(count(&picture, 0x1d, 0x7d, 0x46) > 20, cases[i].green, "green, case %zu", i);
        cr_assert_eq(count(&picture, 0x94, 0x60, 0x0b) > 20, cases[i].amber, "amber, case %zu", i);
        cr_assert_eq(count(&picture, 0xb3, 0x41, 0x2e) > 20, cases[i].red, "red, case %zu", i);
        free(picture.pixels);
    }
}

Test(pictures, a_note_takes_a_line_of_its_own)
{
    static uint8_t images[CELLS][PIXELS];
    struct contact_cell cells[CELLS];
    struct contact_sheet sheet = example_sheet(images, cells);
    SUCCEEDS(picture_contact_sheet(path, &sheet, MODULE_FOLDER));
    struct picture plain = load();
    sheet.note = "12 of 196";
    SUCCEEDS(picture_contact_sheet(path, &sheet, MODULE_FOLDER));
    struct picture noted = load();
    cr_assert_eq(noted.png.height, plain.png.height + 2 * 17);
    free(plain.pixels);
    free(noted.pixels);
}

/* A base answer is a third text on a card: the sheet grows, and the answer is plum. */
Test(pictures, contact_sheet_shows_the_base_too)
{
    static uint8_t images[CELLS][PIXELS];
    struct contact_cell cells[CELLS];
    struct contact_sheet sheet = example_sheet(images, cells);
    SUCCEEDS(picture_contact_sheet(path, &sheet, MODULE_FOLDER));
    struct picture plain = load();
    cr_assert_eq(count(&plain, 0x7b, 0x4a, 0x98), 0, "a base that nobody asked");
    for (int i = 0; i < CELLS; i++)
        cells[i].base = i == 3 ? "" : "gr\xc3\xbcn";
    SUCCEEDS(picture_contact_sheet(path, &sheet, MODULE_FOLDER));
    struct picture picture = load();
    cr_assert_gt(picture.png.height, plain.png.height);
    cr_assert_eq(picture.png.width, plain.png.width);
    cr_assert_gt(count(&picture, 0x7b, 0x4a, 0x98), 100, "no answer of the base");
    cr_assert_gt(count(&picture, 0x1d, 0x7d, 0x46), 100, "no answer of the adapted model");
    free(plain.pixels);
    free(picture.pixels);
}

Test(pictures, any_bytes_may_be_generated)
{
    static uint8_t images[CELLS][PIXELS];
    static const char *const names[CELLS] = {
        "",
        "\xff\xfe\x80",
        "\xc3",
        " ",
        "\x01",
        "\xed\xa0\x80x",
        "a\nb\t",
        "\xf0\x9f\x98\x80",
        "   a",
        "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww"};
    struct contact_cell cells[CELLS];
    struct contact_sheet sheet = example_sheet(images, cells);
    char *endless = malloc(100001);
    memset(endless, 'w', 100000);
    endless[100000] = '\0';
    for (int i = 0; i < CELLS; i++)
        cells[i].generated = names[i];
    cells[3].generated = endless;
    sheet.title = "\xff title";
    sheet.subtitle = NULL;
    SUCCEEDS(picture_contact_sheet(path, &sheet, MODULE_FOLDER));
    struct picture picture = load();
    cr_assert_gt(count(&picture, 0xb3, 0x41, 0x2e), 100, "no red for a wrong name");
    free(picture.pixels);
    sheet.count = 1;
    SUCCEEDS(picture_contact_sheet(path, &sheet, MODULE_FOLDER));
    free(endless);
}

static void example_losses(double loss[STEPS])
{
    for (int i = 0; i < STEPS; i++)
        loss[i] = 1 + 4 * exp(-i / 60.) + 1e-20 * (double)mimo_mix64((uint64_t)i);
}

Test(pictures, loss_curve_has_its_lines)
{
    static const struct loss_level levels[] = {{"right", 1.5}, {"shuffled", 2.5}};
    double loss[STEPS];
    example_losses(loss);
    struct loss_curve curve = {"Title", NULL, 1, STEPS, loss, 2, levels, 0, NULL, NULL};
    SUCCEEDS(picture_loss_curve(path, &curve, MODULE_FOLDER));
    struct picture picture = load();
    cr_assert(picture.png.width == 1720 && picture.png.height == 1000);
    cr_assert_gt(count(&picture, 0x23, 0x67, 0xb1), 1000, "no curve");
    cr_assert_gt(count(&picture, 0xe8, 0xe6, 0xe0), 1000, "no grid");
    free(picture.pixels);
}

/* Blue points right of a column of pixels. */
static int64_t blue_right_of(const struct picture *picture, png_uint_32 column)
{
    int64_t found = 0;
    for (png_uint_32 y = 0; y < picture->png.height; y++)
        for (png_uint_32 x = column; x < picture->png.width; x++) {
            const uint8_t *pixel = picture->pixels + ((size_t)y * picture->png.width + x) * 3;
            found += pixel[2] > pixel[0] + 60;
        }
    return found;
}

/* Beside the curve, which stays as it is: bars that are twice as high as those of half the load. */
Test(pictures, loads_of_experts_stand_beside_the_curve)
{
    static const int64_t even[] = {10, 10, 10, 10}, uneven[] = {20, 20, 0, 0}, none[] = {0, 0};
    const struct expert_bars bars[] = {{"one", 4, even}, {"two", 4, uneven}, {"three", 2, none}};
    double loss[STEPS];
    int64_t blue[4];
    example_losses(loss);
    struct loss_curve curve = {"Title", NULL, 1, STEPS, loss, 0, NULL, 0, bars, NULL};
    for (int i = 0; i < 4; i++) {
        curve.bar_count = i;
        SUCCEEDS(picture_loss_curve(path, &curve, MODULE_FOLDER));
        struct picture picture = load();
        cr_assert(picture.png.width == (i > 0 ? 2220 : 1720) && picture.png.height == 1000);
        blue[i] = blue_right_of(&picture, 1720);
        free(picture.pixels);
    }
    cr_assert(blue[0] == 0 && blue[1] > 10000, "%" PRId64 " and %" PRId64, blue[0], blue[1]);
    cr_assert(llabs(blue[2] - 2 * blue[1]) < blue[1] / 20,
              "as many choices: %" PRId64 " and %" PRId64, blue[1], blue[2]);
}

/* The lowest row, from the top, with a pixel of this colour. */
static int64_t lowest(const struct picture *picture, int red, int green, int blue)
{
    int64_t i = (int64_t)picture->png.width * picture->png.height;
    while (i-- > 0) {
        const unsigned char *p = picture->pixels + 3 * i;
        if (p[0] == red && p[1] == green && p[2] == blue)
            return i / picture->png.width;
    }
    return -1;
}

/* The smooth line ends among the last losses, not at the very last one. */
Test(pictures, loss_curve_does_not_end_at_one_step)
{
    double loss[STEPS];
    for (int i = 0; i < STEPS; i++)
        loss[i] = 3;
    loss[STEPS - 1] = 0;
    struct loss_curve curve = {"Title", NULL, 1, STEPS, loss, 0, NULL, 0, NULL, NULL};
    SUCCEEDS(picture_loss_curve(path, &curve, MODULE_FOLDER));
    struct picture picture = load();
    /* The frame has the losses 0 to 3 in 348 points from point 82 on, and two pixels a point. */
    int64_t row = lowest(&picture, 0x23, 0x67, 0xb1), of_one = 2 * (82 + 348 * 2 / 3);
    cr_assert(row > 2 * 82 && row < of_one, "row %lld: loss 1 is at %lld", (long long)row,
              (long long)of_one);
    free(picture.pixels);
}

/* Losses of 10, 1 and at last 0.1: each tenth takes half of the frame's height. */
Test(pictures, losses_that_span_much_have_a_logarithmic_axis)
{
    double loss[STEPS];
    for (int i = 0; i < STEPS; i++)
        loss[i] = i == 0 ? 10 : i == STEPS - 1 ? 0.1 : 1;
    struct loss_curve curve = {"Title", NULL, 1, STEPS, loss, 0, NULL, 0, NULL, NULL};
    SUCCEEDS(picture_loss_curve(path, &curve, MODULE_FOLDER));
    struct picture picture = load();
    int64_t rows[1000] = {0}, most = 0;
    for (int64_t i = 0; i < (int64_t)picture.png.width * picture.png.height; i++)
        if (memcmp(picture.pixels + 3 * i, "\x23\x67\xb1", 3) == 0)
            rows[i / picture.png.width]++;
    for (int64_t row = 0; row < 1000; row++)
        most = rows[row] > rows[most] ? row : most;
    cr_assert_leq(llabs(most - 2 * (82 + 348 / 2)), 6, "loss 1 is at row %" PRId64, most);
    free(picture.pixels);
}

Test(pictures, loss_curve_has_looks_at_held_out_samples)
{
    double loss[STEPS], held_out[STEPS];
    for (int i = 0; i < STEPS; i++) {
        loss[i] = 1;
        held_out[i] = i % 100 == 99 ? 2 : (double)NAN;
    }
    struct loss_curve curve = {NULL, NULL, 1, STEPS, loss, 0, NULL, 0, NULL, NULL};
    SUCCEEDS(picture_loss_curve(path, &curve, MODULE_FOLDER));
    struct picture none = load();
    cr_assert_eq(count(&none, 0x1d, 0x7d, 0x46), 0);
    curve.held_out = held_out;
    SUCCEEDS(picture_loss_curve(path, &curve, MODULE_FOLDER));
    struct picture some = load();
    cr_assert_gt(count(&some, 0x1d, 0x7d, 0x46), 1000, "a line and four dots");
    cr_assert_gt(count(&some, 0x23, 0x67, 0xb1), 1000, "the curve is still there");
    free(none.pixels);
    free(some.pixels);
}

Test(pictures, loss_curves_at_their_edges)
{
    double loss[STEPS];
    example_losses(loss);
    static const struct loss_level odd = {"not \xff finite", (double)NAN};
    struct loss_curve curve = {NULL, NULL, 301, 1, loss, 1, &odd, 0, NULL, NULL};
    cr_assert_eq(picture_loss_curve(path, &curve, MODULE_FOLDER), MIMO_OK, "one step: %s",
                 mimo_last_error());
    curve.count = STEPS;
    loss[0] = (double)INFINITY;
    loss[100] = loss[101] = (double)NAN;
    cr_assert_eq(picture_loss_curve(path, &curve, MODULE_FOLDER), MIMO_OK, "holes: %s",
                 mimo_last_error());
    for (int i = 0; i < STEPS; i++)
        loss[i] = 3;
    cr_assert_eq(picture_loss_curve(path, &curve, MODULE_FOLDER), MIMO_OK, "flat: %s",
                 mimo_last_error());
    for (int i = 0; i < STEPS; i++)
        loss[i] = (double)NAN;
    cr_assert_eq(picture_loss_curve(path, &curve, MODULE_FOLDER), MIMO_OK, "nothing: %s",
                 mimo_last_error());
    for (int i = 0; i < STEPS; i++)
        loss[i] = i % 2 ? 1e300 : -1e300;
    cr_assert_eq(picture_loss_curve(path, &curve, MODULE_FOLDER), MIMO_OK, "huge: %s",
                 mimo_last_error());
    loss[0] = 1;
    for (int i = 1; i < STEPS; i++)
        loss[i] = nextafter(1, 2);
    cr_assert_eq(picture_loss_curve(path, &curve, MODULE_FOLDER), MIMO_OK, "tiny: %s",
                 mimo_last_error());
}

Test(pictures, each_failure_has_its_sentence)
{
    double loss[STEPS];
    example_losses(loss);
    struct loss_curve curve = {NULL, NULL, 1, STEPS, loss, 0, NULL, 0, NULL, NULL};
    FAILS(picture_loss_curve(path, &curve, "/nowhere"), MIMO_ERR_UNSUPPORTED, "libcairo2-dev");
    FAILS(picture_loss_curve("/nowhere/x.png", &curve, MODULE_FOLDER), MIMO_ERR_IO,
          "/nowhere/x.png");
    curve.count = 0;
    FAILS(picture_loss_curve(path, &curve, MODULE_FOLDER), MIMO_ERR_ARGUMENT, "of 0 steps");
    const struct contact_sheet empty = {.image_size = 32};
    FAILS(picture_contact_sheet(path, &empty, MODULE_FOLDER), MIMO_ERR_ARGUMENT, "of 0 images");
    curve.count = STEPS;
    struct rlimit before = limit_files(4096);
    mimo_status status = picture_loss_curve(path, &curve, MODULE_FOLDER);
    setrlimit(RLIMIT_FSIZE, &before);
    FAILS(status, MIMO_ERR_IO, path, "too large");
    cr_assert_neq(access(path, F_OK), 0, "half a picture was left");
}

int main(int argc, char *argv[])
{
    static const char *const needed[] = {MODULE_FOLDER "/captioner-pictures.so"};
    return run_unless_missing(argc, argv, needed, 1);
}
