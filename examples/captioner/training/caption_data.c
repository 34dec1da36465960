#include "captioner/training/caption_data.h"

#include <inttypes.h>

#include "captioner/data/word_set.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "captioner/training/file_wait.h"
#include "captioner/training/same_file.h"

static struct sample_source source_of(const struct options *options)
{
    return (struct sample_source){.font = options->font,
                                  .emoji_test = options->emoji_test,
                                  .names = options->names,
                                  .image_size = options->image_size};
}

mimo_status caption_data_prepare(mimo_comm *world, const struct options *options)
{
    file_wait wait;
    mimo_status status = MIMO_OK;
    TRY(file_wait_begin(&wait, world, FILE_WAIT_LONG, "samples into %s", options->prepare));
    if (mimo_comm_rank(world) == 0) {
        struct sample_source source = source_of(options);
        status = sample_file_prepare(options->prepare, &source);
    }
    status = file_wait_agree(&wait, status);
    file_wait_end(&wait);
    return status;
}

/* Which file to read: rank 0 fills the cache where nobody named one, while the others wait in the
 * agreement. */
static mimo_status find_file(char **path, const file_wait *wait, const struct options *options)
{
    mimo_status status;
    struct sample_source source = source_of(options);
    if (options->samples) {
        status = memory_copy_string(path, options->samples);
    } else if (mimo_comm_rank(wait->world) == 0) {
        status = sample_cache_fill(path, &source);
    } else {
        status = sample_cache_path(path, &source);
    }
    return file_wait_agree(wait, status);
}

static mimo_status deal_out(caption_data *out)
{
    const struct samples *samples = &out->samples;
    int64_t training = samples->count - samples->held_out_count;
    TRY(memory_reserve(&out->training, training, sizeof *out->training));
    TRY(memory_reserve(&out->held_out, samples->held_out_count, sizeof *out->held_out));
    for (int64_t i = 0; i < samples->count; i++) {
        int64_t length = samples->name_length[i];
        batch_item item = {
            .picture = sample_image(samples, i), .name = sample_name(samples, i), .length = length};
        if (samples->held_out[i])
            out->held_out[out->held_out_count++] = item;
        else
            out->training[out->training_count++] = item;
        if (length > out->longest_name)
            out->longest_name = length;
    }
    return MIMO_OK;
}

static mimo_status count_known(caption_data *out)
{
    word_set words = {0};
    int64_t bytes = 0;
    for (int64_t i = 0; i < out->training_count; i++)
        bytes += out->training[i].length;
    TRY(word_set_reserve(&words, bytes));
    for (int64_t i = 0; i < out->training_count; i++)
        word_set_add(&words, out->training[i].name, (size_t)out->training[i].length);
    word_set_sort(&words);
    for (int64_t i = 0; i < out->held_out_count; i++)
        out->known_count +=
            word_set_covers(&words, out->held_out[i].name, (size_t)out->held_out[i].length);
    word_set_release(&words);
    return MIMO_OK;
}

static mimo_status check_samples(const caption_data *data, const struct options *options)
{
    CHECK(data->samples.image_size == options->image_size, MIMO_ERR_SHAPE,
          "the samples are pictures of %d pixels a side, but --image-size is %" PRId64,
          data->samples.image_size, options->image_size);
    CHECK(data->training_count > 0 && data->held_out_count > 1, MIMO_ERR_SHAPE,
          "%" PRId64 " training and %" PRId64 " held-out samples are too few: at least 1 and 2",
          data->training_count, data->held_out_count);
    int64_t tokens = caption_tokens(options->image_size), least = tokens + data->longest_name;
    CHECK(options->seq >= least, MIMO_ERR_SHAPE,
          "--seq %" PRId64 " is too small: %" PRId64 " image tokens and the longest name, %" PRId64
          " bytes, need %" PRId64,
          options->seq, tokens, data->longest_name, least);
    return MIMO_OK;
}

static mimo_status read_samples(caption_data *out, const char *path, const struct options *options)
{
    TRY(sample_file_read(&out->samples, path));
    TRY(deal_out(out));
    TRY(count_known(out));
    return check_samples(out, options);
}

mimo_status caption_data_load(caption_data *out, mimo_comm *world, const struct options *options)
{
    char *path = NULL;
    file_wait wait;
    TRY(file_wait_begin(&wait, world, options->survive ? FILE_WAIT_SHORT : FILE_WAIT_LONG,
                        "samples"));
    mimo_status status = find_file(&path, &wait, options);
    if (status == MIMO_OK) {
        status = read_samples(out, path, options);
        const opened_file read = {"the sample file", path, out->samples.content, -1};
        status = same_file_agree(world, status, &read);
    }
    file_wait_end(&wait);
    memory_release(path);
    return status;
}

void caption_data_release(caption_data *data)
{
    memory_release(data->training);
    memory_release(data->held_out);
    samples_release(&data->samples);
    *data = (caption_data){0};
}
