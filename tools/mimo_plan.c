/* mimo-plan: the dry-run planner. Needs no launcher and no MPI ranks. */
#include <string.h>

#include "plan_commands.h"

/* One row for each command: X(name, function, help). */
#define PLAN_COMMANDS(X)                                                                          \
    X("grid", plan_grid_command, "dimensions and groups of one grid")                             \
    X("bridge", plan_bridge_command, "who holds what under two grids, and the bytes that move")   \
    X("schedule", plan_schedule_command, "steps of a pipeline beside an encoder, and their time") \
    X("experts", plan_experts_command, "a grid of experts, and the bytes that routes move")       \
    X("pattern", plan_pattern_command, "layers of a hybrid model, on stages and in checkpoints")  \
    X("balance", plan_balance_command, "which encoder lane works on which image")                 \
    X("env", plan_env_command, "environment variables that the library reads")

typedef struct plan_command {
    const char *name, *title; /* usage texts show the title */
    int (*run)(int argc, char **argv);
} plan_command;

static const plan_command commands[] = {
#define ROW(name, function, help) {name, "mimo-plan " name, function},
    PLAN_COMMANDS(ROW)
#undef ROW
};

static const char description[] = "Plan how two process grids meet, without running anything.\v"
                                  "Commands:\n"
#define LINE(name, function, help) "  " name "\t" help "\n"
    PLAN_COMMANDS(LINE)
#undef LINE
        "\n'mimo-plan COMMAND --help' explains a command.";

static error_t parse(int key, char *argument, struct argp_state *state)
{
    switch (key) {
    case ARGP_KEY_ARG:
        return plan_usage("'%s' is no command; see '%s --help'", argument, state->name);
    case ARGP_KEY_NO_ARGS:
        return plan_usage("a command is missing; see '%s --help'", state->name);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int run(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse, .args_doc = "COMMAND [OPTION...]", .doc = description};
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        argv[1] = (char *)commands[i].title;
        return commands[i].run(argc - 1, argv + 1);
    }
    return plan_parse(&argp, argc < 2 ? argc : 2, argv, NULL); /* --help, --version, or an error */
}

int main(int argc, char **argv)
{
    return plan_finish(run(argc, argv));
}
