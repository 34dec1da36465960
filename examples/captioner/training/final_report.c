#include "captioner/training/final_report.h"

#include <inttypes.h>

#include "captioner/captions/evaluate.h"
#include "train/support/train_support.h"
#include "train/support/utf8.h"

/* Ten from all over the list, whose neighbours are alike. */
static void pick_items(final_report *out, const caption_data *data)
{
    out->count = data->held_out_count < REPORT_NAMES ? data->held_out_count : REPORT_NAMES;
    for (int64_t i = 0; i < out->count; i++)
        out->items[i] = data->held_out[i * data->held_out_count / out->count];
}

mimo_status final_report_ask_base(final_report *out, bridged_model *model, const caption_data *data)
{
    pick_items(out, data);
    out->has_base = true;
    return generate_names(model, out->items, out->count, out->base_names);
}

/* Held-out names from all over the list; the items are among them. */
static mimo_status compare_names(final_report *out, bridged_model *model, const caption_data *data)
{
    batch_item others[REPORT_CHOICE];
    int64_t places[REPORT_NAMES], all = data->held_out_count;
    out->choice = all < REPORT_CHOICE ? all : REPORT_CHOICE;
    for (int64_t i = 0; i < out->choice; i++)
        others[i] = data->held_out[i * all / out->choice];
    TRY(accuracy_places(places, model, out->items, out->count, others, out->choice));
    for (int64_t i = 0; i < out->count; i++)
        out->guessed += places[i] < REPORT_GUESSES;
    return MIMO_OK;
}

mimo_status final_report_make(final_report *out, bridged_model *model, const caption_data *data)
{
    /* Half the list away: never the same picture, seldom a figure like it. */
    int64_t rotation = data->held_out_count / 2;
    pick_items(out, data);
    out->known = data->known_count;
    TRY(evaluate_loss(model, data->held_out, data->held_out_count, 0, &out->right_loss));
    TRY(evaluate_loss(model, data->held_out, data->held_out_count, rotation, &out->shuffled_loss));
    TRY(accuracy_measure(&out->accuracy, model, data->held_out, data->held_out_count));
    TRY(compare_names(out, model, data));
    return generate_names(model, out->items, out->count, out->names);
}

const char *final_report_sentence(char text[REPORT_SENTENCE], const final_report *report)
{
    const caption_accuracy *all = &report->accuracy;
    snprintf(text, REPORT_SENTENCE,
             "%" PRId64 " of %" PRId64 " names right to the letter, %" PRId64 " of %" PRId64
             " words; %" PRId64 " of the %" PRId64 " below among its %d likeliest of %" PRId64
             " names",
             all->exact, all->names, all->right_words, all->words, report->guessed, report->count,
             REPORT_GUESSES, report->choice);
    return text;
}

const char *final_report_known(char text[REPORT_SENTENCE], const final_report *report)
{
    int64_t names = report->accuracy.names;
    if (report->known == names)
        snprintf(text, REPORT_SENTENCE,
                 "training has seen every word of the %" PRId64 " held-out names", names);
    else
        snprintf(text, REPORT_SENTENCE,
                 "training has seen every word of %" PRId64 " held-out names; %" PRId64
                 " more have a word that is new",
                 report->known, names - report->known);
    return text;
}

/* Columns on a terminal: code points. The names have no wide or combining ones to speak of. */
static int columns_of(const char *name, int64_t length)
{
    int columns = 0;
    uint32_t code;
    for (size_t at = 0, bytes; at < (size_t)length; at += bytes ? bytes : 1, columns++)
        bytes = utf8_next(name + at, (size_t)length - at, &code);
    return columns;
}

static void print_padded(FILE *stream, const char *name, int64_t length, int width)
{
    fprintf(stream, "%.*s%*s  ", (int)length, name, width - columns_of(name, length), "");
}

static int wider(int width, const char *name, int64_t length)
{
    int columns = columns_of(name, length);
    return columns > width ? columns : width;
}

void final_report_print(const final_report *report, FILE *stream)
{
    static const char name_title[] = "held-out emoji", base_title[] = "what the base calls it";
    fprintf(stream, "\nheld-out loss with the right images    %.4f\n", report->right_loss);
    fprintf(stream, "held-out loss with images shuffled     %.4f\n", report->shuffled_loss);
    char sentence[REPORT_SENTENCE];
    fprintf(stream, "%s\n", final_report_known(sentence, report));
    fprintf(stream, "held out: %s\n", final_report_sentence(sentence, report));
    int width = sizeof name_title - 1, base_width = sizeof base_title - 1;
    for (int64_t i = 0; i < report->count; i++) {
        width = wider(width, report->items[i].name, report->items[i].length);
        base_width = wider(base_width, report->base_names[i].bytes, report->base_names[i].length);
    }
    fputc('\n', stream);
    print_padded(stream, name_title, sizeof name_title - 1, width);
    if (report->has_base)
        print_padded(stream, base_title, sizeof base_title - 1, base_width);
    fprintf(stream, "what the %s calls it\n", report->has_base ? "adapted model" : "model");
    for (int64_t i = 0; i < report->count; i++) {
        const generated_name *base = &report->base_names[i];
        print_padded(stream, report->items[i].name, report->items[i].length, width);
        if (report->has_base)
            print_padded(stream, base->bytes, base->length, base_width);
        fprintf(stream, "%s\n", report->names[i].bytes);
    }
}
