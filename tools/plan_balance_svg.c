/*
 * mimo-plan balance --svg: a row for each lane, as it is at home and balanced; a box for each item.
 * Boxes of one home have one colour, so what has moved shows.
 *
 * Coordinates are whole tenths of a pixel, so that no locale has a say in how numbers are written.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan_balance.h"

/* All in tenths of a pixel. */
enum {
    MARGIN = 160,
    LABEL = 520, /* the names of the lanes, to the left of their bars */
    TITLE = 820, /* above the bars */
    PANEL = 4600,
    GAP = 500, /* between both panels */
    ROW = 220,
    BAR = 170,
    LEGEND = 400,
};

typedef struct drawing {
    const plan_balance *plan;
    int64_t longest; /* what a panel's width stands for */
    int64_t *end;    /* end[lanes]: cost of the boxes of each lane so far */
} drawing;

static int64_t width_of(const drawing *own, int64_t cost)
{
    double share = own->longest > 0 ? (double)cost / (double)own->longest : 0;
    return (int64_t)(share * PANEL);
}

static int64_t panel_of(bool balanced)
{
    return MARGIN + LABEL + (balanced ? PANEL + GAP : 0);
}

static int64_t height_of(const drawing *own)
{
    return TITLE + own->plan->desc.lanes * ROW + LEGEND;
}

static void draw_head(const drawing *own)
{
    int64_t width = panel_of(true) + PANEL + MARGIN, height = height_of(own);
    printf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%" PRId64 "\" height=\"%" PRId64
           "\" viewBox=\"0 0 %" PRId64 " %" PRId64 "\" font-family=\"sans-serif\">\n"
           "<style>.l{font-size:120px;fill:#222}.h{font-size:140px;fill:#222}</style>\n"
           "<rect width=\"%" PRId64 "\" height=\"%" PRId64 "\" fill=\"#fff\"/>\n",
           width / 10, height / 10, width, height, width, height);
}

static void draw_title(const drawing *own, bool balanced)
{
    const mimo_balance_report *report = &own->plan->report;
    int64_t longest = balanced ? report->longest : report->longest_home;
    double bound = report->bound > 0 ? (double)report->bound : 1;
    int permille = (int)((double)longest / bound * 1000 + 0.5);
    printf("<text x=\"%" PRId64 "\" y=\"300\" class=\"h\">%s</text>\n", panel_of(balanced),
           balanced ? "balanced" : "at home");
    printf("<text x=\"%" PRId64 "\" y=\"500\" class=\"l\">longest lane %d.%03d of the bound",
           panel_of(balanced), permille / 1000, permille % 1000);
    if (balanced && report->rows > 0) {
        int moved = (int)((double)report->rows_moved / (double)report->rows * 1000 + 0.5);
        printf(", %d.%d %% of the rows move", moved / 10, moved % 10);
    }
    printf("</text>\n");
}

/* Colours whose hues are far apart for neighbours. */
static void draw_item(const drawing *own, int64_t item, int64_t lane, bool balanced)
{
    const plan_balance *plan = own->plan;
    int64_t begin = width_of(own, own->end[lane]), home = plan->home[item];
    own->end[lane] += plan->cost[item];
    int64_t width = width_of(own, own->end[lane]) - begin;
    char colour[40];
    snprintf(colour, sizeof colour, "hsl(%d,55%%,%d%%)", (int)(home * 137 % 360),
             home < 0 || home == lane ? 62 : 45);
    printf("<rect x=\"%" PRId64 "\" y=\"%" PRId64 "\" width=\"%" PRId64
           "\" height=\"%d\" fill=\"%s\" stroke=\"#fff\" stroke-width=\"%d\"><title>item %" PRId64
           ": %" PRId64 " rows, cost %" PRId64,
           panel_of(balanced) + begin, TITLE + lane * ROW, width, BAR,
           home < 0 ? "#9a9a9a" : colour, width > 40 ? 8 : 0, item, plan->rows[item],
           plan->cost[item]);
    if (home >= 0)
        printf(", home %" PRId64, home);
    printf("</title></rect>\n");
}

/* Those that are at home, or the others. */
static void draw_items(const drawing *own, bool balanced, bool at_home)
{
    const plan_balance *plan = own->plan;
    for (int64_t i = 0; i < plan->desc.items; i++) {
        int64_t lane = balanced ? plan->lane[i] : plan->home[i];
        if (lane >= 0 && (lane == plan->home[i]) == at_home)
            draw_item(own, i, lane, balanced);
    }
}

static void draw_panel(const drawing *own, bool balanced)
{
    const plan_balance *plan = own->plan;
    draw_title(own, balanced);
    for (int64_t l = 0; l < plan->desc.lanes; l++)
        own->end[l] = 0;
    draw_items(own, balanced, true);
    draw_items(own, balanced, false);
    int64_t x = panel_of(balanced) + width_of(own, plan->report.mean);
    printf("<path d=\"M%" PRId64 " %d V%" PRId64 "\" stroke=\"#222\" stroke-width=\"10\" "
           "stroke-dasharray=\"40 30\"><title>mean of a lane</title></path>\n",
           x, TITLE - 60, TITLE + plan->desc.lanes * ROW);
    printf("<text x=\"%" PRId64 "\" y=\"%d\" class=\"l\" text-anchor=\"middle\">mean</text>\n", x,
           TITLE - 90);
}

static void draw_labels(const drawing *own)
{
    for (int64_t l = 0; l < own->plan->desc.lanes; l++)
        printf("<text x=\"%d\" y=\"%" PRId64 "\" class=\"l\">lane %" PRId64 "</text>\n", MARGIN,
               TITLE + l * ROW + BAR / 2 + 40, l);
    printf("<text x=\"%" PRId64 "\" y=\"%" PRId64
           "\" class=\"l\">a box is an item, a colour the lane "
           "that has loaded it; dark: it has moved</text>\n",
           panel_of(false), height_of(own) - LEGEND / 2 + 60);
}

int plan_balance_print_svg(const plan_balance *plan)
{
    const mimo_balance_report *report = &plan->report;
    drawing own = {.plan = plan,
                   .longest = report->longest > report->longest_home ? report->longest
                                                                     : report->longest_home,
                   .end = calloc((size_t)plan->desc.lanes, sizeof(int64_t))};
    if (!own.end)
        return plan_fail("out of memory for %" PRId64 " lanes", plan->desc.lanes);
    draw_head(&own);
    draw_labels(&own);
    draw_panel(&own, false);
    draw_panel(&own, true);
    puts("</svg>");
    free(own.end);
    return 0;
}
