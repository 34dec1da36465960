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
    const char *name;
    int (*run)(int argc, char **argv);
} plan_command;

static const plan_command commands[] = {
#define ROW(name, function, help) {name, function},
    PLAN_COMMANDS(ROW)
#undef ROW
};

static const char description[] = "Plan how two process grids meet, without running anything.\v"
                                  "Commands:\n"
#define LINE(name, function, help) "  " name "\t" help "\n"
    PLAN_COMMANDS(LINE)
#undef LINE
        "\n'mimo-plan COMMAND --help' explains a command.";

static mimo_status take(void *into, const char *word)
{
    (void)into;
    return mimo_fail(MIMO_ERR_ARGUMENT, "'%s' is no command; see 'mimo-plan --help'", word);
}

static mimo_status need_command(void *into)
{
    (void)into;
    return mimo_fail(MIMO_ERR_ARGUMENT, "a command is missing; see 'mimo-plan --help'");
}

static int run(int argc, char **argv)
{
    static const option_table table = {.program = "mimo-plan",
                                       .words = "COMMAND [OPTION...]",
                                       .about = description,
                                       .take = take,
                                       .check = need_command};
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        return commands[i].run(argc - 1, argv + 1);
    }
    return plan_parse(&table, argc < 2 ? argc : 2, argv, NULL); /* --help, --version, or an error */
}

int main(int argc, char **argv)
{
    return plan_finish(run(argc, argv));
}
