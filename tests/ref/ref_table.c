#include "ref_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void end_program(const char *what, const char *name)
{
    fprintf(stderr, "reference: %s%s\n", what, name);
    abort();
}

double *ref_room(int64_t count)
{
    double *room = calloc((size_t)count + 1, sizeof *room);
    if (!room)
        end_program("no memory", "");
    return room;
}

double *ref_add(ref_table *table, const char *name, int64_t rows, int64_t columns)
{
    ref_tensor *grown = realloc(table->list, (size_t)(table->count + 1) * sizeof *grown);
    if (!grown)
        end_program("no memory for ", name);
    table->list = grown;
    if (ref_find(table, name))
        end_program("a second tensor ", name);
    ref_tensor *tensor = &table->list[table->count++];
    if ((size_t)snprintf(tensor->name, sizeof tensor->name, "%s", name) >= sizeof tensor->name)
        end_program("too long a name: ", name);
    tensor->rows = rows;
    tensor->columns = columns;
    tensor->decays = 0;
    tensor->data = ref_room(rows * columns);
    return tensor->data;
}

ref_tensor *ref_find(const ref_table *table, const char *name)
{
    for (int i = 0; i < table->count; i++)
        if (strcmp(table->list[i].name, name) == 0)
            return &table->list[i];
    return NULL;
}

static size_t bytes_of(const ref_tensor *tensor)
{
    return (size_t)(tensor->rows * tensor->columns) * sizeof *tensor->data;
}

ref_table ref_like(const ref_table *table, int with_values)
{
    ref_table made = {0};
    for (int i = 0; i < table->count; i++) {
        const ref_tensor *from = &table->list[i];
        double *to = ref_add(&made, from->name, from->rows, from->columns);
        made.list[i].decays = from->decays;
        if (with_values)
            memcpy(to, from->data, bytes_of(from));
    }
    return made;
}

void ref_zero(ref_table *table)
{
    for (int i = 0; i < table->count; i++)
        memset(table->list[i].data, 0, bytes_of(&table->list[i]));
}

void ref_free(ref_table *table)
{
    for (int i = 0; i < table->count; i++)
        free(table->list[i].data);
    free(table->list);
    *table = (ref_table){0};
}
