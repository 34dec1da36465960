#include "step_setup.h"

#include <stdio.h>

/* What a rank does alone, and can fail in alone. */
static mimo_status create_local(training *t)
{
    char images[64], audio[64], llm[64];
    int ranks = mimo_comm_size(t->at.comm);
    mimo_partition_rule zigzag = MIMO_PARTITION_RULE_INIT;
    mimo_partition_coords coords = MIMO_PARTITION_COORDS_INIT;
    if (ranks % CP != 0)
        return mimo_fail(MIMO_ERR_GRID, "cp = %d does not divide %d ranks", CP, ranks);
    if (ranks % AUDIO_TP != 0)
        return mimo_fail(MIMO_ERR_GRID, "tp = %d does not divide %d ranks", AUDIO_TP, ranks);
    snprintf(images, sizeof images, "tp=1,dp=%d", ranks);
    snprintf(audio, sizeof audio, "tp=%d,dp=%d", AUDIO_TP, ranks / AUDIO_TP);
    snprintf(llm, sizeof llm, "tp=1,cp=%d,dp=%d", CP, ranks / CP);
    TRY(mimo_grid_create_text(&t->encoder[IMAGES], images, 0));
    TRY(mimo_grid_create_text(&t->encoder[AUDIO], audio, 0));
    TRY(mimo_grid_create_text(&t->llm, llm, 0));
    coords.cp_size = CP;
    TRY(mimo_grid_coord(&coords.cp_rank, t->llm, mimo_comm_rank(t->at.comm), "cp"));
    TRY(mimo_partition_create(&t->partition, &zigzag, &coords));
    for (int m = 0; m < MODALITIES; m++)
        TRY(place_reserve(&t->at, &t->rows[m], ROWS));
    TRY(place_reserve(&t->at, &t->d_tile, HELD * SAMPLE));
    return place_reserve(&t->at, &t->d_weights, WEIGHTS * HIDDEN);
}

mimo_status training_create(training *t, bool cuda)
{
    int64_t count, bytes = (HELD * SAMPLE + MODALITIES * ROWS) * (int64_t)sizeof(float);
    mimo_partition_rule zigzag = MIMO_PARTITION_RULE_INIT;
    mimo_bridge_desc desc = MIMO_BRIDGE_DESC_INIT;
    TRY(place_open(&t->at, cuda));
    TRY(mimo_comm_agree(t->at.comm, create_local(t))); /* nobody goes on alone */
    TRY(mimo_buffer_create(&t->buffer, t->at.comm, bytes));
    t->tile = mimo_buffer_data(t->buffer);
    t->batch = ENCODED * mimo_comm_size(t->at.comm);
    desc.dst = t->llm;
    desc.partition = &zigzag; /* an LLM rank receives its share of the positions alone */
    for (int m = 0; m < MODALITIES; m++) {
        t->d_rows[m] = t->tile + HELD * SAMPLE + m * ROWS;
        desc.src = t->encoder[m];
        desc.name = m == IMAGES ? "images" : "audio"; /* in sentences */
        TRY(mimo_bridge_create(&t->bridge[m], t->at.comm, &desc));
        TRY(mimo_bridge_self_test(t->bridge[m], 1)); /* these grids on these machines */
        TRY(mimo_bridge_samples(&t->first[m], &t->encoded[m], t->bridge[m], MIMO_SRC, t->batch));
    }
    TRY(mimo_bridge_samples(&t->held, &count, t->bridge[0], MIMO_DST, t->batch));
    /* The image encoder's grid is the one of src. The audio encoder has its own, and one N. */
    TRY(mimo_gradient_create(&t->gradient, t->at.comm, t->encoder[IMAGES], t->llm));
    return mimo_gradient_add_grid(t->gradient, "audio", t->encoder[AUDIO], "dp", "");
}

void training_destroy(training *t)
{
    mimo_gradient_destroy(t->gradient);
    for (int m = 0; m < MODALITIES; m++) {
        mimo_bridge_destroy(t->bridge[m]);
        place_release(&t->at, t->rows[m]);
    }
    place_release(&t->at, t->d_tile);
    place_release(&t->at, t->d_weights);
    mimo_buffer_destroy(t->buffer);
    mimo_partition_destroy(t->partition);
    mimo_grid_destroy(t->llm);
    for (int m = 0; m < MODALITIES; m++)
        mimo_grid_destroy(t->encoder[m]);
    place_close(&t->at);
}
