#include "mutations.h"

#include <stdlib.h>
#include <string.h>

#include "core/mutation.h"

static const oracle_mutation table[] = {
    {NULL, NULL, PHASE_RUN, {NULL, NULL, false}},
};

static const oracle_mutation *active;
static bool reached;

static void end_program(const char *what, const char *name)
{
    fprintf(stderr, "mimo-oracle: %s '%s'\n", what, name);
    abort();
}

const oracle_mutation *mutation_find(const char *name)
{
    for (const oracle_mutation *row = table; row->name; row++)
        if (strcmp(row->name, name) == 0)
            return row;
    return NULL;
}

void mutation_list(FILE *stream)
{
    for (const oracle_mutation *row = table; row->name; row++)
        fprintf(stream, "%s\t%s\t--encoder %s --llm %s%s\t%s\n", row->name,
                oracle_phase_rows[row->phase].name, row->spec.encoder, row->spec.llm,
                row->spec.sp ? " --sp" : "", row->sentence);
}

void mutation_switch_on(const oracle_mutation *mutation)
{
    active = mutation;
}

bool mutation_reached(void)
{
    return reached;
}

/* Asked by the test copies of the library and of src/nn. */
bool mimo_mutated(const char *name)
{
    if (!mutation_find(name))
        end_program("the sources ask for an unknown mutation", name);
    bool on = active && strcmp(active->name, name) == 0;
    reached = reached || on;
    return on;
}
