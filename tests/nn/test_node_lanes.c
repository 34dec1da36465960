/* Lanes of a walk on a device that only records: its streams have vector clocks, so each pair of
 * nodes is ordered by events, or may run at once. */
#include "device/device.h"
#include "expect_failure.h"
#include "node_bed.h"
#include "train/pipeline/stack_walk.h"

enum { MOST_NODES = 1024, MOST_EVENTS = 2048 };

/* ------------------------------------------ the device --------------------------------------- */

/* How many nodes of each stream came before. */
typedef struct vector_clock {
    int64_t of[STAGE_STREAMS];
} vector_clock;

/* `graph`: the number of the graph that captured it; 0: none. */
typedef struct recorded_event {
    vector_clock at;
    int graph;
} recorded_event;

static struct recorder {
    vector_clock now[STAGE_STREAMS];
    int graph, graphs[STAGE_STREAMS]; /* that is being captured, and of each stream */
    recorded_event events[MOST_EVENTS];
    int64_t made, alive;
} recorder;
static char streams_at[STAGE_STREAMS];

static mimo_status make_event(mimo_event **out)
{
    cr_assert_lt(recorder.made, MOST_EVENTS);
    recorder.alive++;
    *out = (mimo_event *)&recorder.events[recorder.made++];
    return MIMO_OK;
}

static void end_event(mimo_event *event)
{
    recorder.alive -= event != NULL;
}

static int number_of(mimo_stream stream)
{
    return (int)((char *)stream - streams_at);
}

static mimo_status record(mimo_event *event, mimo_stream stream)
{
    int number = number_of(stream);
    *(recorded_event *)event = (recorded_event){recorder.now[number], recorder.graphs[number]};
    return MIMO_OK;
}

/* As CUDA has it: a stream that waits for an event of a graph is captured from then on, and a
 * captured one waits for no event from outside. */
static mimo_status await(mimo_event *event, mimo_stream stream)
{
    const recorded_event *there = (const recorded_event *)event;
    int number = number_of(stream);
    vector_clock *here = &recorder.now[number];
    cr_assert_eq(there->graph, recorder.graph, "an event of graph %d is waited for in graph %d",
                 there->graph, recorder.graph);
    recorder.graphs[number] = there->graph;
    for (int s = 0; s < STAGE_STREAMS; s++)
        here->of[s] = there->at.of[s] > here->of[s] ? there->at.of[s] : here->of[s];
    return MIMO_OK;
}

/* From now on the stream that computes is captured, by the graph of this number. */
static void begin_capture(int graph)
{
    memset(recorder.graphs, 0, sizeof recorder.graphs);
    recorder.graph = recorder.graphs[STREAM_COMPUTE] = graph;
}

/* All that was captured has to come before the end. */
static void end_capture(void)
{
    for (int s = 0; s < STAGE_STREAMS; s++)
        cr_assert_eq(recorder.now[STREAM_COMPUTE].of[s], recorder.now[s].of[s],
                     "stream %d has not come back", s);
    begin_capture(0);
}

static const mimo_device recording = {.name = "a recorder",
                                      .enqueues = true,
                                      .event_create = make_event,
                                      .event_destroy = end_event,
                                      .event_record = record,
                                      .event_wait = await};

/* ------------------------------------------- a walk ------------------------------------------ */

typedef struct lanes_bed {
    mimo_nodes *nodes;
    nn_runtime runtime;
    stage_streams streams;
    node_lanes lanes;
    vector_clock ran[MOST_NODES];
} lanes_bed;

/* Chunks of these layers: m a mixture, r one that is recomputed and sends its rows again, k one
 * that keeps them, d a dense layer. */
typedef struct lanes_case {
    const char *layers;
    int64_t chunks, micro_batches, pieces;
    bool early;
} lanes_case;

static const lanes_case usual = {"mdr", 1, 4, 0, false};

static mimo_node_layer layer_of(char letter)
{
    return stack_walk_layer(letter == 'd' ? &nn_block_dense : &nn_block_mixed,
                            letter == 'r'   ? NN_RECOMPUTE_SEND_ROWS
                            : letter == 'k' ? NN_RECOMPUTE_KEEP_ROWS
                                            : NN_RECOMPUTE_NONE);
}

static mimo_nodes *cut(const lanes_case *c)
{
    mimo_node_layer layers[MOST_LAYERS];
    mimo_node_chunk chunks[2];
    mimo_schedule_desc sizes = MIMO_SCHEDULE_DESC_INIT;
    mimo_nodes_desc desc = MIMO_NODES_DESC_INIT;
    mimo_schedule *schedule;
    mimo_nodes *nodes;
    sizes.kind = c->chunks > 1 ? MIMO_SCHEDULE_INTERLEAVED : MIMO_SCHEDULE_1F1B;
    sizes.chunks = c->chunks;
    sizes.micro_batches = c->micro_batches;
    sizes.encoder_group = c->pieces > 0 ? 1 : 0;
    sizes.overlap = true;
    desc.early = c->early;
    desc.encoder_pieces = c->pieces;
    for (size_t i = 0; c->layers[i]; i++)
        layers[i] = layer_of(c->layers[i]);
    for (int64_t n = 0; n < c->chunks; n++)
        chunks[n] = (mimo_node_chunk){layers, (int64_t)strlen(c->layers), 0, 0};
    SUCCEEDS(mimo_schedule_create(&schedule, &sizes));
    SUCCEEDS(mimo_nodes_create(&nodes, schedule, chunks, &desc));
    mimo_schedule_destroy(schedule);
    return nodes;
}

static lanes_bed *new_lanes(const lanes_case *c)
{
    lanes_bed *it = calloc(1, sizeof *it);
    memset(&recorder, 0, sizeof recorder);
    it->nodes = cut(c);
    it->runtime = (nn_runtime){.device = &recording};
    it->streams.runtime = &it->runtime;
    for (int s = 0; s < STAGE_STREAMS; s++)
        it->streams.of[s] = &streams_at[s < STREAM_EXCHANGES ? STREAM_COMPUTE : s];
    SUCCEEDS(node_lanes_open(&it->lanes, it->nodes, 0, &it->streams, NULL));
    cr_assert(node_lanes_apart(&it->lanes));
    cr_assert_leq(it->lanes.count, MOST_NODES);
    return it;
}

static void free_lanes(lanes_bed *it)
{
    node_lanes_close(&it->lanes);
    cr_assert_eq(recorder.alive, 0);
    mimo_nodes_destroy(it->nodes);
    free(it);
}

static int64_t step_at(const lanes_bed *it, int64_t i)
{
    return it->lanes.list[i].step;
}

static void run_node(lanes_bed *it, int64_t i, bool serial)
{
    stage_stream stream = node_lanes_stream(&it->lanes.list[i]);
    SUCCEEDS(node_lanes_enter(&it->lanes, i, serial));
    cr_assert_eq(recorder.graphs[stream], recorder.graph, "%s %s is in no graph",
                 mimo_node_name_of(&it->lanes.list[i]).text,
                 mimo_node_where_of(it->nodes, 0, i).text);
    recorder.now[stream].of[stream]++;
    it->ran[i] = recorder.now[stream];
    SUCCEEDS(node_lanes_leave(&it->lanes, i));
}

/* The nodes of the step that begins at `first`. Returns where the next one begins. */
static int64_t walk_step(lanes_bed *it, int64_t first, bool serial)
{
    int64_t i = first;
    node_lanes_begin(&it->lanes);
    for (; i < it->lanes.count && step_at(it, i) == step_at(it, first); i++)
        run_node(it, i, serial);
    SUCCEEDS(node_lanes_end(&it->lanes));
    return i;
}

static void walk(lanes_bed *it, bool serial)
{
    for (int64_t at = 0; at < it->lanes.count;)
        at = walk_step(it, at, serial);
}

/* ------------------------------------------- orders ------------------------------------------ */

static bool is_before(const lanes_bed *it, int64_t a, int64_t b)
{
    stage_stream stream = node_lanes_stream(&it->lanes.list[a]);
    return a != b && it->ran[a].of[stream] <= it->ran[b].of[stream];
}

static void expect_before(const lanes_bed *it, int64_t a, int64_t b)
{
    cr_assert(is_before(it, a, b), "%s %s does not wait for %s %s",
              mimo_node_name_of(&it->lanes.list[b]).text, mimo_node_where_of(it->nodes, 0, b).text,
              mimo_node_name_of(&it->lanes.list[a]).text, mimo_node_where_of(it->nodes, 0, a).text);
}

static bool is_exchange(const lanes_bed *it, int64_t i)
{
    return node_lanes_stream(&it->lanes.list[i]) != STREAM_COMPUTE;
}

typedef struct reader {
    const lanes_bed *it;
    const mimo_node_places *places;
    int64_t at;
} reader;

static mimo_status expect_input(void *context, const mimo_node *input)
{
    const reader *own = context;
    int64_t place = *mimo_node_place(own->places, input) - 1;
    if (place >= 0)
        expect_before(own->it, place, own->at);
    return MIMO_OK;
}

/* By the rules, which know neither waits nor streams. */
static void expect_inputs(const lanes_bed *it)
{
    mimo_node_places places;
    SUCCEEDS(mimo_node_places_open(&places, it->nodes, 0));
    for (int64_t i = 0; i < it->lanes.count; i++)
        *mimo_node_place(&places, &it->lanes.list[i]) = i + 1;
    for (int64_t i = 0; i < it->lanes.count; i++) {
        reader own = {it, &places, i};
        SUCCEEDS(mimo_node_each_input(it->nodes, 0, &it->lanes.list[i], expect_input, &own));
    }
    mimo_node_places_close(&places);
}

/* Exchanges take turns. Tiles are written again by a later step, and those that blocks share by
 * rows that are sent again. */
static void expect_order(const lanes_bed *it)
{
    int64_t last = -1;
    for (int64_t i = 0; i < it->lanes.count; i++) {
        bool shared = is_exchange(it, i) && it->lanes.list[i].pass == MIMO_NODE_REPLAY;
        if (is_exchange(it, i) && last >= 0)
            expect_before(it, last, i);
        for (int64_t j = 0; j < i; j++)
            if (step_at(it, j) < step_at(it, i) || (shared && !is_exchange(it, j)))
                expect_before(it, j, i);
        last = is_exchange(it, i) ? i : last;
    }
}

static const lanes_case cases[] = {
    {"mdr", 1, 4, 0, false}, {"mdr", 1, 4, 0, true}, {"rr", 1, 3, 0, false}, {"rr", 1, 3, 0, true},
    {"kmk", 1, 1, 0, false}, {"mmm", 2, 3, 0, true}, {"rdk", 2, 2, 0, true}, {"mm", 1, 4, 2, false},
};

Test(node_lanes, wait_for_what_nodes_need)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lanes_bed *it = new_lanes(&cases[i]);
        walk(it, false);
        expect_inputs(it);
        free_lanes(it);
    }
}

Test(node_lanes, keep_the_order_of_the_list)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lanes_bed *it = new_lanes(&cases[i]);
        walk(it, false);
        walk(it, false); /* marks of the first walk are not those of the second */
        expect_order(it);
        free_lanes(it);
    }
}

/* A step that ends before its time, as one that fails. */
Test(node_lanes, meet_at_the_end_of_a_step)
{
    lanes_bed *it = new_lanes(&usual);
    int64_t last = place_of(it->nodes, 0, "f.dispatch0", 0);
    node_lanes_begin(&it->lanes);
    for (int64_t i = 0; i <= last; i++)
        run_node(it, i, false);
    cr_assert_eq(recorder.now[STREAM_COMPUTE].of[STREAM_EXCHANGES], 0);
    SUCCEEDS(node_lanes_end(&it->lanes));
    cr_assert_eq(recorder.now[STREAM_COMPUTE].of[STREAM_EXCHANGES], 1);
    cr_assert_eq(recorder.now[STREAM_COMPUTE].of[STREAM_ROUTES], 1);
    free_lanes(it);
}

/* Each step as a graph of its own. The walk behind them is in none. */
static void capture_steps(const lanes_case *c, bool serial)
{
    lanes_bed *it = new_lanes(c);
    int graph = 0;
    walk(it, serial);
    for (int64_t at = 0; at < it->lanes.count;) {
        begin_capture(++graph);
        at = walk_step(it, at, serial);
        end_capture();
    }
    walk(it, serial);
    expect_order(it);
    free_lanes(it);
}

Test(node_lanes, can_be_captured)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int serial = 0; serial <= 1; serial++)
            capture_steps(&cases[i], serial);
}

static void expect_at_once(const lanes_bed *it, const char *a, int64_t of_a, const char *b,
                           int64_t of_b)
{
    int64_t i = place_of(it->nodes, 0, a, of_a), j = place_of(it->nodes, 0, b, of_b);
    cr_assert(!is_before(it, i, j) && !is_before(it, j, i), "%s and %s are ordered", a, b);
}

Test(node_lanes, run_at_once)
{
    lanes_bed *it = new_lanes(&usual);
    int64_t made = recorder.made;
    walk(it, false);
    expect_at_once(it, "f.dispatch0", 1, "b.mlp2.dw", 0);
    expect_at_once(it, "f.combine2", 1, "b.pre0.bwd", 0);
    walk(it, true);
    for (int64_t i = 1; i < it->lanes.count; i++)
        expect_before(it, i - 1, i);
    cr_assert_eq(recorder.made, made, "a walk made %d events", (int)(recorder.made - made));
    free_lanes(it);
}

/* On the host, and where nobody asked for streams. */
Test(node_lanes, one_stream_has_no_lanes)
{
    lanes_bed *it = new_lanes(&usual);
    node_lanes lanes = {0};
    it->streams.of[STREAM_EXCHANGES] = it->streams.of[STREAM_COMPUTE];
    SUCCEEDS(node_lanes_open(&lanes, it->nodes, 0, &it->streams, NULL));
    cr_assert_not(node_lanes_apart(&lanes));
    SUCCEEDS(node_lanes_open(&lanes, it->nodes, 0, NULL, NULL));
    cr_assert_not(node_lanes_apart(&lanes));
    node_lanes_close(&lanes);
    free_lanes(it);
}
