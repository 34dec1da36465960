#include "final_report.h"

#include "captioner_support.h"
#include "evaluate.h"

/* Ten from all over the list, whose neighbours are alike. */
static void pick_items(final_report *out, const caption_data *data)
{
    out->count = data->held_out_count < REPORT_NAMES ? data->held_out_count : REPORT_NAMES;
    for (int64_t i = 0; i < out->count; i++)
        out->items[i] = data->held_out[i * data->held_out_count / out->count];
}

mimo_status final_report_make(final_report *out, captioner_model *model, const caption_data *data)
{
    /* Half the list away: never the same picture, seldom a variant of it. */
    int64_t rotation = data->held_out_count / 2;
    pick_items(out, data);
    TRY(evaluate_loss(model, data->held_out, data->held_out_count, 0, &out->right_loss));
    TRY(evaluate_loss(model, data->held_out, data->held_out_count, rotation, &out->shuffled_loss));
    return generate_names(model, out->items, out->count, out->names);
}

void final_report_print(const final_report *report, FILE *stream)
{
    fprintf(stream, "\nheld-out loss with the right images    %.4f\n", report->right_loss);
    fprintf(stream, "held-out loss with images shuffled     %.4f\n", report->shuffled_loss);
    int width = 0;
    for (int64_t i = 0; i < report->count; i++)
        if (report->items[i].length > width)
            width = (int)report->items[i].length;
    fprintf(stream, "\n%-*s  %s\n", width, "held-out emoji", "what the model calls it");
    for (int64_t i = 0; i < report->count; i++)
        fprintf(stream, "%-*s  %s\n", width, report->items[i].name, report->names[i].bytes);
}
