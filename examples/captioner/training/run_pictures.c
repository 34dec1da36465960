#include "captioner/training/run_pictures.h"

#include <inttypes.h>

#include "captioner/pictures/pictures.h"
#include "captioner/training/run_files.h"
#include "train/support/train_support.h"

enum { LINE_CAPACITY = 256, MOST_BARS = 6 };
static const char curve_file[] = RUN_FILE_CURVE, sheet_file[] = RUN_FILE_SHEET;

/* Of the first mixtures. Returns how many there are. */
static int list_bars(struct expert_bars bars[MOST_BARS], const expert_loads *loads)
{
    int count = loads->mixtures < MOST_BARS ? (int)loads->mixtures : MOST_BARS;
    if (loads->steps == 0)
        return 0;
    for (int i = 0; i < count; i++) {
        bars[i] = (struct expert_bars){.experts = loads->experts,
                                       .counts = loads->counts + i * loads->experts};
        snprintf(bars[i].label, sizeof bars[i].label, "experts of block %d", 2 * i + 1);
    }
    return count;
}

static mimo_status draw_curve(const run_pictures *pictures)
{
    const final_report *report = pictures->report;
    struct expert_bars bars[MOST_BARS];
    char path[RUN_FILE_PATH];
    TRY(run_file_path(path, pictures->folder, curve_file));
    struct loss_level levels[] = {{"held out, right images", report->right_loss},
                                  {"held out, images shuffled", report->shuffled_loss}};
    const char *why = "Held-out names are made of words that training has, so they are easier than "
                      "those of training, of which some have a word of their own.";
    struct loss_curve curve = {.title = "Loss per token",
                               .subtitle = report->known == report->accuracy.names ? why : NULL,
                               .first_step = pictures->first_step,
                               .count = pictures->count,
                               .loss = pictures->losses,
                               .level_count = 2,
                               .levels = levels,
                               .bar_count = list_bars(bars, pictures->loads),
                               .bars = bars,
                               .held_out = pictures->held_out};
    return picture_loss_curve(path, &curve, NULL);
}

static mimo_status draw_sheet(const run_pictures *pictures)
{
    const final_report *report = pictures->report;
    char path[RUN_FILE_PATH], subtitle[LINE_CAPACITY], note[LINE_CAPACITY];
    char sentence[REPORT_SENTENCE];
    TRY(run_file_path(path, pictures->folder, sheet_file));
    struct contact_cell cells[REPORT_NAMES];
    for (int64_t i = 0; i < report->count; i++)
        cells[i] = (struct contact_cell){report->items[i].picture, report->items[i].name,
                                         report->names[i].bytes,
                                         report->has_base ? report->base_names[i].bytes : NULL};
    snprintf(
        subtitle, sizeof subtitle,
        "New to the model: these pictures and their names; %s, and often the figure in another "
        "skin tone.",
        final_report_known(sentence, report));
    snprintf(note, sizeof note, "%s. Loss a byte: %.3f; pictures shuffled: %.3f.",
             final_report_sentence(sentence, report), report->right_loss, report->shuffled_loss);
    struct contact_sheet sheet = {.title = report->has_base
                                               ? "Held-out emoji, and what the base and the "
                                                 "adapted model call them"
                                               : "Held-out emoji and what the model calls them",
                                  .subtitle = subtitle,
                                  .image_size = (int)pictures->image_size,
                                  .count = (int)report->count,
                                  .cells = cells,
                                  .note = note};
    return picture_contact_sheet(path, &sheet, NULL);
}

mimo_status run_pictures_probe(const char *folder)
{
    char path[RUN_FILE_PATH];
    TRY(run_file_path(path, folder, sheet_file));
    TRY(picture_probe(path, NULL));
    TRY(run_file_path(path, folder, curve_file));
    return picture_probe(path, NULL);
}

mimo_status run_pictures_draw(const run_pictures *pictures, FILE *stream)
{
    TRY(draw_sheet(pictures));
    if (pictures->count > 0)
        TRY(draw_curve(pictures));
    fprintf(stream, "pictures: %s/%s%s%s\n", pictures->folder, sheet_file,
            pictures->count > 0 ? ", " : "", pictures->count > 0 ? curve_file : "");
    return MIMO_OK;
}
