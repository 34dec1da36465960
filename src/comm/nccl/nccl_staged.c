#include "comm/nccl/nccl_staged.h"

#include <string.h>

#include "comm/nccl/nccl_buffer.h"
#include "comm/nccl/nccl_programs.h"
#include "comm/staged/staged_program.h"
#include "device/cuda_calls.h"

static mimo_program_pool *pool_of(const mimo_comm *comm)
{
    return ((const nccl_comm *)comm)->programs;
}

static mimo_status fill(mimo_nccl_staged *out, const mimo_comm *comm, const mimo_messages *all,
                        const mimo_staged_program *program)
{
    const mimo_buffer *fifos = all->fifos;
    const mimo_staged_shared shared = {&fifos->flags[fifos->comm->rank][fifos->comm->rank],
                                       mimo_nccl_buffer_note(fifos),
                                       mimo_nccl_buffer_progress(fifos)};
    const size_t messages = (size_t)program->message_count * sizeof *program->messages;
    const size_t blocks = (size_t)program->block_count * sizeof *program->blocks;
    out->runs = true;
    out->gated = all->pushes.ctas > 0;
    out->base_count = all->base_count;
    if (program->message_count <= MIMO_STAGED_SMALL_MESSAGES &&
        program->block_count <= MIMO_STAGED_SMALL_BLOCKS &&
        all->base_count <= MIMO_STAGED_SMALL_BASES) {
        mimo_staged_small *small = &out->as.small;
        small->head = program->head;
        small->shared = shared;
        memcpy(small->messages, program->messages, messages);
        memcpy(small->blocks, program->blocks, blocks);
        return MIMO_OK;
    }
    mimo_staged_large *large = &out->as.large;
    const mimo_list lists[] = {{program->messages, messages}, {program->blocks, blocks}};
    MIMO_TRY(mimo_program_memory_take(&out->lists, pool_of(comm), lists, 2));
    large->head = program->head;
    large->shared = shared;
    large->messages = out->lists->data;
    large->blocks = (const mimo_staged_block *)(const void *)((char *)out->lists->data + messages);
    return MIMO_OK;
}

mimo_status mimo_nccl_staged_make(mimo_nccl_staged *out, const mimo_comm *comm,
                                  const mimo_messages *all, bool copies)
{
    int64_t ctas, multiprocessors;
    bool bulk;
    mimo_staged_program program = {0};
    if (!all->fifos)
        return MIMO_OK;
    MIMO_TRY(mimo_nccl_most_ctas(&ctas, &multiprocessors, all->pushes.ctas));
    MIMO_TRY_CUDA(mimo_staged_bulk_runs(&bulk));
    mimo_status status = mimo_staged_program_make(&program, all, copies, ctas, bulk);
    if (status == MIMO_OK && program.message_count > 0)
        status = fill(out, comm, all, &program);
    mimo_staged_program_release(&program);
    return status;
}

void mimo_nccl_staged_bind(mimo_nccl_staged *staged, char *const *bases)
{
    if (staged->runs)
        memcpy(staged->lists ? staged->as.large.bases : staged->as.small.bases, bases,
               (size_t)staged->base_count * sizeof *bases);
}

static cudaError_t launch_gate(const mimo_nccl_staged *staged, mimo_stream stream)
{
    if (!staged->gated)
        return cudaSuccess;
    return staged->lists ? mimo_staged_gate_large(&staged->as.large, stream)
                         : mimo_staged_gate_small(&staged->as.small, stream);
}

static cudaError_t launch(const mimo_nccl_staged *staged, mimo_stream stream)
{
    const mimo_staged_small *small = &staged->as.small;
    const mimo_staged_large *large = &staged->as.large;
    if (staged->lists)
        return (large->head.warps > 0 ? mimo_staged_bulk_large
                                      : mimo_staged_load_store_large)(large, stream);
    return (small->head.warps > 0 ? mimo_staged_bulk_small : mimo_staged_load_store_small)(small,
                                                                                           stream);
}

mimo_status mimo_nccl_staged_run(const mimo_nccl_staged *staged, mimo_stream stream)
{
    if (!staged->runs)
        return MIMO_OK;
    if (staged->lists)
        MIMO_TRY(mimo_program_memory_enter(staged->lists, stream));
    MIMO_TRY(mimo_cuda_status(launch_gate(staged, stream), "gate of staged messages"));
    MIMO_TRY(mimo_cuda_status(launch(staged, stream), "kernel of staged messages"));
    return staged->lists ? mimo_program_memory_leave(staged->lists, stream) : MIMO_OK;
}

void mimo_nccl_staged_release(mimo_nccl_staged *staged)
{
    mimo_program_memory_give_back(staged->lists);
    *staged = (mimo_nccl_staged){.runs = false};
}
