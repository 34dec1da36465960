/* mimo-plan experts as text: the groups, what each rank of a group holds and moves, and the bytes
 * of the busiest link. */
#include <inttypes.h>
#include <stdio.h>

#include "plan_experts.h"

enum { GROUPS_SHOWN = 8 };

static double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static void print_head(const plan_experts *plan)
{
    char name[PLAN_EXPERTS_NAME];
    const plan_experts_request *request = plan->request;
    printf("%s with experts %s on %" PRId64 " ranks\n", request->llm, plan_experts_name(name, plan),
           mimo_grid_size(plan->llm));
    printf("%" PRId64 " experts, top %" PRId64 ", %" PRId64 " tokens a rank, %s rows of %" PRId64
           " bytes, partial sums of %" PRId64 "\n\n",
           request->experts, request->top_k, request->tokens, request->dtype, plan->row_bytes,
           plan->sum_bytes);
}

static void print_set(const plan_experts *plan, const char *set)
{
    int64_t count, size;
    if (mimo_grid_group_count(&count, &size, plan->view, set) != MIMO_OK)
        return;
    printf("groups along %-7s", set);
    for (int64_t g = 0; g < count && g < GROUPS_SHOWN; g++) {
        if (mimo_grid_group_at(plan->group, plan->view, set, g) != MIMO_OK)
            return;
        for (int64_t i = 0; i < size; i++)
            printf("%s%" PRId64, i == 0 ? " {" : " ", plan->group[i]);
        putchar('}');
    }
    puts(count > GROUPS_SHOWN ? " ..." : "");
}

static void print_ranks(const plan_experts *plan)
{
    const mimo_route_shape *shape = &plan->ranks.shape;
    printf("\nthe first group along etp,ep, %s, seed %" PRId64 "; rows\n\n",
           plan->request->zipf > 0 ? "experts by Zipf's law" : "experts by chance",
           plan->request->seed);
    printf("%6s %4s %4s  %-13s %9s %9s %9s %9s\n", "rank", "t", "x", "experts", "tile", "in", "out",
           "copied");
    if (mimo_grid_group_at(plan->group, plan->view, "etp,ep", 0) != MIMO_OK)
        return;
    for (int64_t place = 0; place < shape->ranks; place++) {
        char experts[48];
        const plan_experts_load *load = &plan->loads[place];
        int64_t x = mimo_route_x(shape, place);
        snprintf(experts, sizeof experts, "[%" PRId64 ",%" PRId64 ")", x * shape->held,
                 (x + 1) * shape->held);
        printf("%6" PRId64 " %4" PRId64 " %4" PRId64 "  %-13s %9" PRId64 " %9" PRId64 " %9" PRId64
               " %9" PRId64 "\n",
               plan->group[place], place % shape->etp, x, experts, load->rows, load->in, load->out,
               load->copied);
    }
}

static void print_tiles(const plan_experts *plan)
{
    int64_t ranks = plan->ranks.shape.ranks, capacity = plan->request->capacity;
    double mean = (double)plan->all_rows / (double)ranks;
    printf("\ntile: at most %" PRId64 " rows, %.1f MiB, %.2f times the mean\n", plan->most_rows,
           mib(plan->most_rows * plan->row_bytes),
           plan->all_rows > 0 ? (double)plan->most_rows / mean : 1);
    if (capacity >= 0)
        printf("capacity %" PRId64 ": %" PRId64 " of %" PRId64 " tiles are too small, %" PRId64
               " rows are lost\n",
               capacity, plan->overflows, ranks, plan->lost);
}

static void print_line(const plan_experts *plan, const char *what, int64_t bytes, double gbps)
{
    printf("%-36s %8.1f MiB", what, mib(bytes));
    if (plan->request->speed.gbps > 0)
        printf(" %10.1f us", plan_experts_us(bytes, gbps));
    putchar('\n');
}

static void print_bytes(const plan_experts *plan)
{
    const plan_experts_bytes *most = &plan->busiest;
    double gbps = plan->request->speed.gbps, copy = plan_experts_copy_gbps(&plan->request->speed);
    printf("\nof the busiest rank\n");
    print_line(plan, "rows, over the link", most->rows, gbps);
    print_line(plan, "combine, over the link", most->combine, gbps);
    print_line(plan, "copies in the tile", most->copied, copy);
    print_line(plan, "in place of rows: one for each pair", most->per_pair, gbps);
    print_line(plan, "in place of rows: an all-gather", most->all_gather, gbps);
}

int plan_experts_print_text(const plan_experts *plan)
{
    print_head(plan);
    for (int i = 0; i < PLAN_EXPERT_SETS; i++)
        print_set(plan, plan_expert_sets[i]);
    print_ranks(plan);
    print_tiles(plan);
    print_bytes(plan);
    return 0;
}
