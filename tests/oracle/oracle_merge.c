#include "oracle_merge.h"

#include "core/check.h"

static mimo_status visit_linears(oracle_candidate *candidate, nn_lora_visit *visit)
{
    MIMO_TRY(encoder_visit(&candidate->encoder, visit));
    return language_visit(&candidate->llm, visit);
}

static mimo_status hash_values(uint64_t *hash, const oracle_candidate *candidate)
{
    uint64_t part;
    *hash = 0;
    for (int store = 0; store < ORACLE_STORES; store++) {
        MIMO_TRY(nn_hash_params(&part, candidate->stores[store], NN_VALUE));
        *hash += part;
    }
    return MIMO_OK;
}

mimo_status oracle_merge_run(oracle_candidate *candidate, const synthetic_step *step,
                             oracle_capture *capture)
{
    uint64_t before, after;
    MIMO_TRY(hash_values(&before, candidate));
    MIMO_TRY(visit_linears(candidate, nn_lora_merge));
    MIMO_TRY(oracle_candidate_predict(candidate, step, capture, "merged llm.logits"));
    MIMO_TRY(visit_linears(candidate, nn_lora_unmerge));
    MIMO_TRY(hash_values(&after, candidate));
    capture_scalar(capture, "all bits as before merging", before == after);
    return MIMO_OK;
}
