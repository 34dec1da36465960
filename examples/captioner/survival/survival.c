#include "captioner/survival/survival.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mimo/survivors.h>

#include "captioner/survival/survive_grids.h"
#include "captioner/training/run_files.h"
#include "captioner/training/training_run.h"
#include "train/formats/adapter_format.h"
#include "train/support/atomic_file.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/unfinished_file.h"
#include "train/support/visible_text.h"

enum {
    MOST_TRIES = 8,     /* of agreeing who is left: another rank dies in each */
    MOST_FRUITLESS = 3, /* generations that lost nobody and got no further */
    REASON = 1024,
    LIST = 256,
};

typedef struct generations {
    survival *run;
    const struct options *given;
    const struct options *now; /* of this generation's ranks */
    survive_grids grids;
    run_course course;
    int full;       /* ranks of the first generation */
    int64_t *leads; /* [lead_count]: process numbers of the ranks 0 so far */
    int64_t lead_count;
    int64_t last;  /* the step that the generation before the last one began from */
    int fruitless; /* generations in a row */
    bool over;     /* no other generation can be made */
    bool done;     /* all ranks have ended training and wrote what they had to */
} generations;

/* ------------------------------------------- old files ---------------------------------------- */

/* Each rank 0 may have been stopped in the middle of a save. */
static mimo_status remember_lead(generations *all)
{
    int64_t pid = getpid();
    TRY(mimo_comm_broadcast(all->run->world, &pid, (int64_t)sizeof pid, 0, NULL));
    mimo_status status =
        memory_regrow(&all->leads, all->lead_count, all->lead_count + 1, sizeof *all->leads);
    if (status == MIMO_OK)
        all->leads[all->lead_count++] = pid;
    return mimo_comm_agree(all->run->world, status);
}

static mimo_status remove_of_leads(const generations *all, const char *path)
{
    for (int64_t i = 0; path && i < all->lead_count; i++)
        TRY(atomic_file_remove_of(path, (long)all->leads[i]));
    return MIMO_OK;
}

/* `names` ends with NULL. */
static mimo_status remove_in_folder(const generations *all, const char *folder,
                                    const char *const *names)
{
    for (int i = 0; folder && names[i]; i++) {
        char *path;
        TRY(adapter_path(&path, folder, names[i]));
        mimo_status status = remove_of_leads(all, path);
        memory_release(path);
        TRY(status);
    }
    return MIMO_OK;
}

/* A rename by one of them then fails, whenever it wakes. */
static mimo_status remove_unfinished(const generations *all)
{
    static const char *const adapter[] = {ADAPTER_CONFIG_NAME, ADAPTER_TENSORS_NAME, NULL};
    static const char *const results[] = {RUN_FILE_SHEET, RUN_FILE_CURVE,  RUN_FILE_PLANNED,
                                          RUN_FILE_RAN,   RUN_FILE_EVENTS, NULL};
    const struct options *given = all->given;
    TRY(remove_of_leads(all, given->save));
    TRY(remove_of_leads(all, given->log));
    TRY(remove_of_leads(all, given->merge));
    TRY(remove_of_leads(all, given->adapter_out));
    TRY(remove_in_folder(all, given->adapter_out, adapter));
    return remove_in_folder(all, given->out, results);
}

/* ---------------------------------------- who is left ----------------------------------------- */

/* "3, 5" */
static void list_lost(char list[LIST], const int *left, int count, int size)
{
    size_t used = 0;
    list[0] = '\0';
    for (int rank = 0, next = 0; rank < size; rank++) {
        if (next < count && left[next] == rank)
            next++;
        else if (used < LIST)
            used += (size_t)snprintf(list + used, LIST - used, "%s%d", used > 0 ? ", " : "", rank);
    }
}

static void say_lost(const generations *all, const int *left, int size, const char *why)
{
    char list[LIST], shown[VISIBLE_SENTENCE];
    int count = mimo_comm_size(all->run->world);
    if (!all->run->lead)
        return;
    list_lost(list, left, count, size);
    fprintf(stderr, "captioner: %s\n", visible_text(shown, sizeof shown, why));
    fprintf(stderr, "captioner: of %d ranks %d are left%s%s\n", size, count,
            list[0] ? ", without " : "", list);
}

static mimo_status agree_left(mimo_comm **out, mimo_comm *ended, int *left, int tries)
{
    mimo_survivors_desc desc = MIMO_SURVIVORS_DESC_INIT;
    mimo_status status = MIMO_ERR_TIMEOUT;
    desc.ranks = left;
    for (int i = 0; status == MIMO_ERR_TIMEOUT && i < tries; i++)
        status = mimo_comm_survivors(out, ended, &desc);
    return status;
}

/* All `size` ranks are there, and no state is newer than that of the last time. A rank may not have
 * come as far as the others have. Collective. */
static mimo_status count_fruitless(generations *all, int size)
{
    run_course *course = &all->course;
    TRY(mimo_comm_allreduce(all->run->world, &course->from, 1, MIMO_I64, MIMO_MAX, NULL));
    bool fruit = mimo_comm_size(all->run->world) < size || course->from > all->last;
    all->last = course->from;
    all->fruitless = fruit ? 0 : all->fruitless + 1;
    CHECK(all->fruitless < MOST_FRUITLESS, MIMO_ERR_STATE,
          "%d ranks went back to step %" PRId64
          " %d times, and none of them is lost: the deadline of %" PRId64
          " ms is too short for a step or a save",
          size, course->from, all->fruitless, mimo_comm_deadline(all->run->world));
    return MIMO_OK;
}

/* A communicator of those that are left in the place of the ended one. */
static mimo_status replace_world(generations *all, const char *why)
{
    survival *run = all->run;
    mimo_comm *ended = run->world, *next;
    int size = mimo_comm_size(ended), *left = NULL;
    TRY(memory_reserve(&left, size, sizeof *left));
    mimo_status status = agree_left(&next, ended, left, all->done ? 1 : MOST_TRIES);
    if (status == MIMO_OK) {
        run->world = next;
        run->lead = mimo_comm_rank(next) == 0;
        say_lost(all, left, size, why);
        mimo_comm_destroy(ended);
    }
    memory_release(left);
    return status;
}

/* ----------------------------------------- generations ---------------------------------------- */

/* Who is left, and on which grids they go on. */
static mimo_status next_ranks(generations *all, const char *why)
{
    TRY(replace_world(all, why));
    int ranks = mimo_comm_size(all->run->world);
    if (ranks != all->full)
        return survive_grids_choose(&all->now, &all->grids, ranks);
    all->now = all->given;
    return MIMO_OK;
}

/* Nothing was made for a next generation, and what was saved stays. A rank that is out knows no
 * more of that. */
static mimo_status end_here(generations *all, mimo_status status)
{
    char reason[REASON];
    all->over = true;
    if (all->course.saved < 0 || status == MIMO_ERR_ABORTED)
        return status;
    snprintf(reason, sizeof reason, "%s", mimo_last_error());
    return mimo_fail(status, "%s. The model after step %" PRId64 " is in %s, for --resume", reason,
                     all->course.saved, all->given->save);
}

/* Collective over those that are left of `size` ranks. */
static mimo_status prepare(generations *all, int size)
{
    mimo_comm *world = all->run->world;
    all->course.generation = mimo_comm_generation(world);
    unfinished_file_set_generation(all->course.generation);
    TRY(count_fruitless(all, size));
    TRY(mimo_comm_agree(world, all->run->lead ? remove_unfinished(all) : MIMO_OK));
    return remember_lead(all);
}

/* Whether the ranks are to go on: they have lost each other. After an error of MPI the family still
 * lives, on this rank alone. */
static bool is_lost(const generations *all, mimo_status status)
{
    mimo_comm *world = all->run->world;
    if (status == MIMO_OK || !all->given->survive || all->over)
        return false;
    if (status == MIMO_ERR_COMM)
        (void)mimo_comm_abort(world, mimo_last_error());
    return mimo_comm_state(world) != MIMO_OK;
}

/* All that are left are in their farewell: no other one needs them. */
static mimo_status agree_done(generations *all)
{
    int behind = !all->done;
    TRY(mimo_comm_allreduce(all->run->world, &behind, 1, MIMO_I32, MIMO_MAX, NULL));
    all->done = behind == 0;
    return MIMO_OK;
}

static mimo_status go_on(generations *all)
{
    char why[REASON];
    int size = mimo_comm_size(all->run->world);
    snprintf(why, sizeof why, "%s", mimo_last_error());
    all->run->lost = true;
    mimo_status status = next_ranks(all, why);
    if (status != MIMO_OK && all->done && status != MIMO_ERR_ABORTED) {
        all->over = true;
        return MIMO_OK;
    }
    if (status != MIMO_OK)
        return end_here(all, status);
    status = agree_done(all);
    if (status == MIMO_OK && !all->done)
        status = prepare(all, size);
    return status == MIMO_OK || is_lost(all, status) ? status : end_here(all, status);
}

/* A rank that dies in the last agreement of a run may leave the others of two minds: some would
 * end, and be missing to those that have to go on. So all meet once more. Who fails here knows that
 * every rank came as far, and only goes on where others did not hear of that. */
static mimo_status say_farewell(generations *all)
{
    if (!all->given->survive)
        return MIMO_OK;
    all->done = true;
    return mimo_comm_barrier(all->run->world);
}

static mimo_status run_generation(generations *all)
{
    TRY(training_generation(&all->course, all->now, all->run->world));
    return say_farewell(all);
}

/* Open MPI's mpirun tells its processes whether it lets them live when one of them dies. Another
 * launcher says nothing. A rank that dies behind the last step would keep the others in
 * MPI_Finalize. */
static void ask_launcher(survival *run)
{
    const char *recovers = getenv("OMPI_MCA_orte_enable_recovery");
    run->lost = recovers && strcmp(recovers, "1") == 0;
    if (!run->lost && run->lead && getenv("OMPI_COMM_WORLD_SIZE"))
        fputs("captioner: warning: this mpirun ends all ranks when one dies, and --survive can do "
              "nothing: give it --enable-recovery\n",
              stderr);
}

static mimo_status begin(generations *all)
{
    mimo_comm *world = all->run->world;
    const struct options *given = all->given;
    all->now = given;
    all->full = mimo_comm_size(world);
    if (!given->survive)
        return MIMO_OK;
    CHECK(mimo_comm_deadline(world) > 0, MIMO_ERR_ARGUMENT,
          "--survive needs a deadline, by which ranks notice that one is dead: set "
          "MIMO_DEADLINE_MS, to more than a step and a save take");
    TRY(mimo_comm_agree(world, survive_grids_read(&all->grids, given, all->full)));
    ask_launcher(all->run);
    return remember_lead(all);
}

mimo_status survival_run(survival *run, const struct options *options)
{
    generations all = {.run = run, .given = options, .course = RUN_COURSE_INIT, .last = -1};
    mimo_status status = begin(&all);
    if (status == MIMO_OK)
        status = run_generation(&all);
    while (is_lost(&all, status)) {
        status = go_on(&all);
        if (status == MIMO_OK && !all.done)
            status = run_generation(&all);
    }
    run_course_release(&all.course);
    survive_grids_release(&all.grids);
    memory_release(all.leads);
    return status;
}
