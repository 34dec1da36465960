/* mimo-diff: where two runs of the captioner part, from their logs or from what they saved. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mimo/version.h>

#include "train/support/visible_text.h"
#include "captioner/diff/diff_files.h"

enum { EXIT_EQUAL = 0, EXIT_DIFFERENT = 1, EXIT_NO_ANSWER = 2 };

static const char description[] =
    "Say where two runs of the captioner begin to differ: two logs of --log, or two safetensors "
    "files of --save, --merge or --adapter-out."
    "\vOf logs: the first step that differs, in the order in which a step makes things (the "
    "start, tokens, loss, gradients, norm, parameters), and how many parts the gradient of the "
    "tensor is added "
    "from. Only steps that both logs have are compared, and their times are not. With "
    "--log-hashes=tensors the captioner's log names tensors.\n"
    "Of safetensors files: the first tensor by name, and its first element.\n\n"
    "Exit status: 0 equal, 1 different, 2 where they cannot be compared.";

static int fail(const char *sentence)
{
    char shown[VISIBLE_SENTENCE];
    fprintf(stderr, "mimo-diff: %s\n", visible_text(shown, sizeof shown, sentence));
    return EXIT_NO_ANSWER;
}

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "mimo-diff (mimo-bridge) %s\n", mimo_version_text());
}

typedef struct arguments {
    const char *path[2];
    int count;
} arguments;

static error_t parse(int key, char *text, struct argp_state *state)
{
    arguments *given = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        if (given->count == 2)
            argp_error(state, "there are two files to compare, and '%s'", text);
        given->path[given->count++] = text;
        return 0;
    case ARGP_KEY_END:
        if (given->count < 2)
            argp_error(state, "give two files to compare, not %d", given->count);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* A result that could not be printed is none. */
static int finish(int code)
{
    if (fclose(stdout) != 0)
        return fail("cannot write the result");
    return code;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {.parser = parse, .args_doc = "A B", .doc = description};
    arguments given = {0};
    bool equal = false;
    argp_program_version_hook = print_version;
    argp_err_exit_status = EXIT_NO_ANSWER;
    error_t error = argp_parse(&argp, argc, argv, 0, NULL, &given);
    if (error)
        return fail(strerror(error));
    if (diff_files(&equal, stdout, given.path[0], given.path[1]) != MIMO_OK)
        return finish(fail(mimo_last_error()));
    return finish(equal ? EXIT_EQUAL : EXIT_DIFFERENT);
}
