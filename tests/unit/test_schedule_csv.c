/* Tables of torch.distributed.pipelining, both ways. */
#include "expect_failure.h"
#include "schedule_bed.h"

static mimo_schedule *read_table(mimo_schedule_desc desc, const char *table)
{
    mimo_schedule *schedule = NULL;
    SUCCEEDS(mimo_schedule_create_csv(&schedule, &desc, table));
    return schedule;
}

static void expect_table(mimo_schedule_desc desc, const char *table, mimo_schedule_format format,
                         const char *expected)
{
    mimo_schedule *schedule = read_table(desc, table);
    char *text = printed_of(schedule, format);
    cr_assert_str_eq(text, expected);
    free(text);
    mimo_schedule_destroy(schedule);
}

Test(schedule_csv, reads_a_table)
{
    expect_table(desc_of(MIMO_SCHEDULE_1F1B, 2, 2), "0F0,0F1,,0B0,,0B1\r\n , 1F0,1B0,1F1 ,1B1,\r\n",
                 MIMO_SCHEDULE_TEXT, "stage 0: F0 F1 B0 B1\nstage 1: F0 B0 F1 B1\n");
    expect_table(desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, 1, 1), "0F0,0I0,0W0", MIMO_SCHEDULE_TEXT,
                 "stage 0: F0 I0 W0\n");
    expect_table(desc_of(MIMO_SCHEDULE_FORWARD, 1, 2), "0F0,0F1\n", MIMO_SCHEDULE_TEXT,
                 "stage 0: F0 F1\n");
    expect_table(desc_of(MIMO_SCHEDULE_1F1B, 2, 1),
                 "0F0,,0B0,0REDUCE_GRAD\n,1F0,1B0,1REDUCE_GRAD\n", MIMO_SCHEDULE_CSV,
                 "0F0,0B0\n1F0,1B0\n");
}

/* A stage whose second chunk is the mirror of its first: the last chunk lies on stage 0. */
static const char v_table[] = "0F0,,,3F0,3B0,,,0B0\n,1F0,2F0,,,2B0,1B0\n";

Test(schedule_csv, placements_of_chunks)
{
    mimo_schedule_desc desc = with_chunks(desc_of(MIMO_SCHEDULE_1F1B, 2, 1), 2);
    expect_table(desc, v_table, MIMO_SCHEDULE_TEXT,
                 "stage 0: F0.0 F0.1 B0.1 B0.0\nstage 1: F0.0 F0.1 B0.1 B0.0\n");
    expect_table(desc, v_table, MIMO_SCHEDULE_CSV, "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n");
    mimo_schedule *schedule = read_table(desc, v_table);
    mimo_step_costs costs = MIMO_STEP_COSTS_INIT;
    costs.hop = 1; /* between chunks 1 and 2 nothing moves */
    costs.head = 3;
    cr_assert_eq(report_of(schedule, &costs).time, 4 * 4 + 2 + 3 + 4 * 8 + 2 + 6);
    mimo_schedule_destroy(schedule);
}

Test(schedule_csv, pairs_of_forward_and_backward)
{
    mimo_schedule_desc desc = desc_of(MIMO_SCHEDULE_1F1B, 1, 2);
    expect_table(desc, "0F0,(0F1;0B0)OVERLAP_F_B,0B1", MIMO_SCHEDULE_TEXT,
                 "stage 0: F0 FB1/0 B1\n");
    expect_table(desc, "0F0,(0F1;0B0)OVERLAP_F_B,0B1", MIMO_SCHEDULE_CSV,
                 "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
}

/* The encoder's steps are put between those of a table as between those of an order. */
Test(schedule_csv, encoder_beside_a_table)
{
    mimo_schedule_desc desc = with_encoder(desc_of(MIMO_SCHEDULE_ZERO_BUBBLE, 4, 8), 1, 5);
    mimo_schedule *schedule = made(desc);
    char *table = printed_of(schedule, MIMO_SCHEDULE_CSV);
    mimo_schedule *again = read_table(desc, table);
    cr_assert_eq(mimo_schedule_hash(schedule), mimo_schedule_hash(again));
    free(table);
    mimo_schedule_destroy(again);
    mimo_schedule_destroy(schedule);
}

Test(schedule_csv, every_order_and_back)
{
    for (int64_t pp = 1; pp <= 4; pp++)
        for (int kind = 0; kind < 4; kind++)
            for (int overlap = 0; overlap <= (kind < MIMO_SCHEDULE_ZERO_BUBBLE); overlap++) {
                mimo_schedule_desc desc = desc_of((mimo_schedule_kind)kind, pp, 3 * pp);
                desc.chunks = kind == MIMO_SCHEDULE_INTERLEAVED ? 3 : 1;
                desc.overlap = overlap;
                mimo_schedule *schedule = made(desc);
                char *table = printed_of(schedule, MIMO_SCHEDULE_CSV);
                desc.overlap = false;
                mimo_schedule *again = read_table(desc, table);
                cr_assert_eq(mimo_schedule_hash(schedule), mimo_schedule_hash(again));
                free(table);
                mimo_schedule_destroy(again);
                mimo_schedule_destroy(schedule);
            }
}

static void refused(mimo_schedule_desc desc, const char *table, const char *words)
{
    mimo_schedule *schedule = NULL;
    FAILS(mimo_schedule_create_csv(&schedule, &desc, table), MIMO_ERR_ARGUMENT, words);
    cr_assert_null(schedule);
}

Test(schedule_csv, tables_that_are_none)
{
    mimo_schedule_desc two = desc_of(MIMO_SCHEDULE_1F1B, 2, 1),
                       one = desc_of(MIMO_SCHEDULE_1F1B, 1, 1);
    refused(two, "0F0,0B0\n1F0,,,1B0,X4\n", "schedule: row 2, cell 5: 'X4' is no step");
    static const char *const words[] = {"0",
                                        "F0",
                                        "0F",
                                        "0F0 1",
                                        "0G0",
                                        "0SEND_F0",
                                        "-1F0",
                                        "0F-1",
                                        "0F99999999999999999999",
                                        "(0F0",
                                        "(0F0;0B0)",
                                        "(0F0;0B0)OVERLAP",
                                        "(0B0;0F0)OVERLAP_F_B",
                                        "(0F0)OVERLAP_F_B",
                                        "(0F0;0B0)OVERLAP_F_B1",
                                        "()OVERLAP_F_B"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        refused(one, words[i], "' is no step");
    refused(two, "0F0,0B0\n", "schedule: 1 rows over pp=2");
    refused(two, "", "schedule: 0 rows over pp=2");
    refused(one, "0F0,0B0\n1F0\n", "schedule: 2 rows over pp=1");
    refused(two, "0F0,0B0\n1F0,2B0\n", "schedule: row 2, cell 2: chunk 2 of 2");
    refused(two, "0F0,0B0\n0F0,0B0\n", "row 2, cell 1: chunk 0 of the model belongs to row 1");
    refused(with_chunks(two, 2), "0F0,2F0,2B0,0B0\n1F0,2F0,2B0,1B0\n",
            "row 2, cell 2: chunk 2 of the model belongs to row 1");
    refused(with_chunks(two, 2), "0F0,2F0,3F0\n1F0\n",
            "row 1, cell 3: chunk 3 beside chunk 2: a row has one of each 2 chunks of the model");
    refused(with_chunks(two, 2), "0F0,2F0,2B0,0B0\n1F0,1B0\n",
            "schedule: row 2 has no step of its chunk 1 of 2");
    refused(one, "0F0,0B0,REDUCE_GRAD", "row 1, cell 3: 'REDUCE_GRAD' is no step");
    refused(one, "0F0,0B0,0REDUCE_GRAD0", "row 1, cell 3: '0REDUCE_GRAD0' is no step");
    refused(one, "0F0,0B1", "schedule: B1 (stage 0, step 1) of 1 micro-batches");
    two.stages = 0;
    refused(two, "", "over pp=0");
}

/* Micro-batches that go back from the last one on. Groups of the encoder go back in order, so stage
 * 0 holds all of them. */
Test(schedule_csv, backwards_in_descending_order)
{
    static const char table[] = "0F0,0F1,0F2,0B2,0B1,0B0\n1F0,1F1,1F2,1B2,1B1,1B0\n";
    mimo_schedule_desc desc = desc_of(MIMO_SCHEDULE_1F1B, 2, 3);
    refused(desc, table, "schedule: B1 before B0 (stage 0, step 4): backwards of a chunk ascend");
    desc.any_order = true;
    expect_table(desc, table, MIMO_SCHEDULE_CSV, table);
    expect_table(with_encoder(desc, 1, 0), table, MIMO_SCHEDULE_TEXT,
                 "stage 0: E0 BF0 F0 E1 BF1 F1 E2 BF2 F2 B2 BB2 B1 BB1 B0 BB0 EB0 EB1 EB2\n"
                 "stage 1: E0 BF0 E1 E2 BF1 F0 BF2 F1 F2 B2 B1 BB2 B0 BB1 BB0 EB0 EB1 EB2\n");
    refused(with_encoder(desc, 1, 2), table,
            "encoder_alive 2: stage 0 needs 3 groups before the first one is done");
    refused(with_encoder(desc, 2, 1), table, "encoder_alive 1: stage 0 needs 2 groups");
}

/* Lists that stand in a table break the same rules as others. */
Test(schedule_csv, tables_with_bad_lists)
{
    mimo_schedule_desc desc = desc_of(MIMO_SCHEDULE_1F1B, 2, 2);
    refused(desc, "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", "schedule: F1 before F0 (stage 1, step 0)");
    refused(desc, "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
            "schedule: stuck: stage 0 at B0 waits for B0 of stage 1, which is at F1 and waits for "
            "stage 0");
    refused(desc, "0F0,0B0,0F1\n1F0,1F1,1B0,1B1\n", "schedule: stage 0 has no B1");
}
