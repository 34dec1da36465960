#include "oracle_runs.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 64, STEP = 4096 };

/* The whole file as a string; NULL where it can't be read. */
static char *read_text(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t used = 0, got = file ? 1 : 0;
    while (got > 0) {
        char *grown = realloc(text, used + STEP + 1);
        if (!grown)
            abort();
        text = grown;
        got = fread(text + used, 1, STEP, file);
        used += got;
        text[used] = '\0';
    }
    if (file)
        fclose(file);
    return text;
}

/* The words of a line, after the program's name, as main() gets them. */
static const char *parse_line(oracle_options *out, char *line)
{
    char program[] = "mimo-oracle", *words[MOST_WORDS] = {program}, *rest;
    int count = 1;
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (count == MOST_WORDS - 1)
            return "--runs: a line has too many words";
        words[count++] = word;
    }
    const char *wrong = oracle_options_parse(out, count, words);
    if (!wrong && (out->runs || out->asked || out->list_mutations || out->list_order_mutations))
        return "--runs: a line is no run";
    return wrong;
}

const char *oracle_runs_read(oracle_runs *out, const char *path)
{
    *out = (oracle_runs){.text = read_text(path)};
    if (!out->text)
        return "--runs: can't read the file";
    char *rest;
    for (char *line = strtok_r(out->text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        oracle_options *grown = realloc(out->list, (size_t)(out->count + 1) * sizeof *grown);
        if (!grown)
            abort();
        out->list = grown;
        const char *wrong = parse_line(&out->list[out->count++], line);
        if (wrong)
            return wrong;
    }
    return out->count > 0 ? NULL : "--runs: the file has no line";
}

void oracle_runs_free(oracle_runs *runs)
{
    free(runs->list);
    free(runs->text);
    *runs = (oracle_runs){0};
}
