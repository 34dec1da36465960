#include "captioner/support/progress.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "train/support/visible_text.h"

enum {
    LINES_OF_A_RUN = 20,
    DEFAULT_COLUMNS = 80,
    NARROWEST_BAR = 8,
    WIDEST_BAR = 40,
    TEXT_CAPACITY = 128,
};

static const double seconds_between_bars = 0.1;

static int columns_of(FILE *stream)
{
    struct winsize size = {.ws_col = 0};
    int fd = fileno(stream);
    if (fd < 0 || ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return DEFAULT_COLUMNS;
    return size.ws_col;
}

enum progress_kind progress_kind_of(FILE *stream)
{
    int fd = fileno(stream);
    return fd >= 0 && isatty(fd) ? PROGRESS_BAR : PROGRESS_LINES;
}

void progress_begin(struct progress *progress, FILE *stream, enum progress_kind kind, int64_t first,
                    int64_t last)
{
    int64_t every = (last - first) / LINES_OF_A_RUN;
    *progress = (struct progress){.stream = stream,
                                  .kind = kind,
                                  .first = first,
                                  .last = last,
                                  .every = every > 0 ? every : 1,
                                  .columns = columns_of(stream),
                                  .drawn = -1};
}

/* "1:02:03" or "2:03". */
static void write_time(char *text, size_t room, double seconds)
{
    int64_t whole = seconds > 0 && seconds < 1e9 ? (int64_t)(seconds + 0.5) : 0;
    int64_t hours = whole / 3600, minutes = whole / 60 % 60;
    if (hours > 0)
        snprintf(text, room, "%" PRId64 ":%02" PRId64 ":%02" PRId64, hours, minutes, whole % 60);
    else
        snprintf(text, room, "%" PRId64 ":%02" PRId64, minutes, whole % 60);
}

/* "120/1500  loss 2.3456  80 ms/step  1:50 left" */
static void write_state(char text[TEXT_CAPACITY], const struct progress *progress, int64_t step,
                        double loss, double seconds)
{
    char left[32];
    int64_t done = step - progress->first;
    double each = done > 0 ? seconds / (double)done : 0;
    write_time(left, sizeof left, each * (double)(progress->last - step));
    snprintf(text, TEXT_CAPACITY, "%*" PRId64 "/%" PRId64 "  loss %.4f  %.0f ms/step  %s left",
             snprintf(NULL, 0, "%" PRId64, progress->last), step, progress->last, loss, 1e3 * each,
             left);
}

static void draw_bar(struct progress *progress, int64_t step, const char *state)
{
    int room = progress->columns - (int)strlen(state) - 4; /* brackets, a space, the last column */
    int width = room > WIDEST_BAR ? WIDEST_BAR : room;
    int64_t run = progress->last - progress->first;
    char bar[WIDEST_BAR + 1] = "";
    if (width >= NARROWEST_BAR) {
        int64_t full = run > 0 ? (step - progress->first) * width / run : width;
        memset(bar, '.', (size_t)width);
        memset(bar, '#', (size_t)full);
        bar[width] = '\0';
        fprintf(progress->stream, "\r[%s] %s\033[K", bar, state);
    } else {
        fprintf(progress->stream, "\r%.*s\033[K", progress->columns - 1, state);
    }
    fflush(progress->stream);
    progress->open = true;
}

void progress_step(struct progress *progress, int64_t step, double loss, double seconds)
{
    char state[TEXT_CAPACITY];
    int64_t done = step - progress->first;
    bool edge = done == 1 || step == progress->last;
    if (progress->kind == PROGRESS_LINES) {
        if (!edge && done % progress->every != 0)
            return;
        write_state(state, progress, step, loss, seconds);
        fprintf(progress->stream, "step %s\n", state);
        fflush(progress->stream);
        return;
    }
    if (!edge && progress->drawn >= 0 && seconds - progress->drawn < seconds_between_bars)
        return;
    progress->drawn = seconds;
    write_state(state, progress, step, loss, seconds);
    draw_bar(progress, step, state);
    if (step == progress->last)
        progress_end(progress);
}

void progress_note(struct progress *progress, const char *format, ...)
{
    char note[VISIBLE_SENTENCE], shown[VISIBLE_SENTENCE];
    va_list arguments;
    progress_end(progress);
    va_start(arguments, format);
    vsnprintf(note, sizeof note, format, arguments);
    va_end(arguments);
    fprintf(progress->stream, "%s\n", visible_text(shown, sizeof shown, note));
    fflush(progress->stream);
}

void progress_end(struct progress *progress)
{
    if (!progress->open)
        return;
    fputc('\n', progress->stream);
    fflush(progress->stream);
    progress->open = false;
}
