#include "captioner/data/sample_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/support/atomic_file.h"
#include "train/support/train_memory.h"
#include "train/support/train_support.h"
#include "train/support/little_endian.h"
#include "train/support/utf8.h"

static const char magic[8] = {'M', 'I', 'M', 'O', 'E', 'M', 'J', 'I'};

enum {
    VERSION = 1,
    HASHED_BYTES = 40, /* of the header: all but the checksum */
    HEADER_BYTES = 48,
    RECORD_PREFIX = 2, /* held out, name length */
};

struct header {
    int64_t image_size;
    int64_t count;
    int64_t body_bytes;
    uint64_t source;
    uint64_t checksum;
};

mimo_status samples_create(struct samples *out, int64_t count, int64_t image_size)
{
    CHECK(image_size >= SAMPLE_SMALLEST_IMAGE && image_size <= SAMPLE_LARGEST_IMAGE,
          MIMO_ERR_ARGUMENT, "images are %d to %d pixels a side, not %" PRId64,
          SAMPLE_SMALLEST_IMAGE, SAMPLE_LARGEST_IMAGE, image_size);
    struct samples samples = {.count = count, .image_size = (int)image_size};
    mimo_status status;
    TRY_GOTO(status, fail, memory_reserve(&samples.names, count, SAMPLE_NAME_CAPACITY + 1));
    TRY_GOTO(status, fail, memory_reserve(&samples.name_length, count, 1));
    TRY_GOTO(status, fail, memory_reserve(&samples.held_out, count, sizeof(bool)));
    TRY_GOTO(status, fail,
             memory_reserve(&samples.images, count, (size_t)(image_size * image_size * 3)));
    *out = samples;
    return MIMO_OK;
fail:
    samples_release(&samples);
    return status;
}

void samples_release(struct samples *samples)
{
    memory_release(samples->names);
    memory_release(samples->name_length);
    memory_release(samples->held_out);
    memory_release(samples->images);
    *samples = (struct samples){0};
}

/* Writing. */

static size_t image_bytes(int64_t image_size)
{
    return (size_t)(image_size * image_size * 3);
}

static void put_header(unsigned char bytes[HEADER_BYTES], const struct header *header)
{
    memcpy(bytes, magic, sizeof magic);
    put_little_endian(bytes + 8, VERSION, 4);
    put_little_endian(bytes + 12, (uint64_t)header->image_size, 4);
    put_little_endian(bytes + 16, (uint64_t)header->count, 8);
    put_little_endian(bytes + 24, (uint64_t)header->body_bytes, 8);
    put_little_endian(bytes + 32, header->source, 8);
    put_little_endian(bytes + 40, header->checksum, 8);
}

/* One sample as its bytes; returns how many. */
static size_t put_record(unsigned char *record, const struct samples *samples, int64_t i)
{
    size_t length = samples->name_length[i];
    size_t pixels = image_bytes(samples->image_size);
    record[0] = samples->held_out[i];
    record[1] = samples->name_length[i];
    memcpy(record + RECORD_PREFIX, sample_name(samples, i), length);
    memcpy(record + RECORD_PREFIX + length, sample_image(samples, i), pixels);
    return RECORD_PREFIX + length + pixels;
}

static mimo_status write_records(struct atomic_file *file, const struct samples *samples,
                                 unsigned char *record)
{
    struct header header = {
        .image_size = samples->image_size, .count = samples->count, .source = samples->source};
    for (int64_t i = 0; i < samples->count; i++)
        header.body_bytes +=
            (int64_t)(RECORD_PREFIX + samples->name_length[i] + image_bytes(samples->image_size));
    unsigned char bytes[HEADER_BYTES];
    put_header(bytes, &header);
    TRY(atomic_file_write(file, bytes, sizeof bytes));
    header.checksum = hash_bytes(HASH_START, bytes, HASHED_BYTES);
    for (int64_t i = 0; i < samples->count; i++) {
        size_t length = put_record(record, samples, i);
        header.checksum = hash_bytes(header.checksum, record, length);
        TRY(atomic_file_write(file, record, length));
    }
    put_header(bytes, &header);
    return atomic_file_write_at(file, bytes, sizeof bytes, 0);
}

mimo_status sample_file_write(const char *path, const struct samples *samples)
{
    struct atomic_file file = ATOMIC_FILE_INIT;
    unsigned char *record;
    size_t room = RECORD_PREFIX + SAMPLE_NAME_CAPACITY + image_bytes(samples->image_size);
    TRY(memory_reserve(&record, (int64_t)room, 1));
    mimo_status status = atomic_file_open(&file, path);
    if (status == MIMO_OK)
        status = write_records(&file, samples, record);
    if (status == MIMO_OK)
        status = atomic_file_commit(&file);
    atomic_file_discard(&file);
    memory_release(record);
    return status;
}

/* Reading. */

static mimo_status read_bytes(int fd, unsigned char *to, int64_t bytes, const char *path)
{
    int64_t done = 0;
    while (done < bytes) {
        ssize_t got = read(fd, to + done, (size_t)(bytes - done));
        if (got < 0 && errno == EINTR)
            continue;
        CHECK(got >= 0, MIMO_ERR_IO, "cannot read the sample file %s: %s", path, strerror(errno));
        CHECK(got > 0, MIMO_ERR_IO,
              "the sample file %s shrank to %" PRId64 " of %" PRId64 " bytes while it was read",
              path, done, bytes);
        done += got;
    }
    return MIMO_OK;
}

static mimo_status read_whole(unsigned char **out, int64_t *size, const char *path)
{
    /* O_NONBLOCK: a pipe with nobody at its other end must not hold us. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    CHECK(fd >= 0, errno == ENOENT ? MIMO_ERR_NOT_FOUND : MIMO_ERR_IO,
          "cannot open the sample file %s: %s", path, strerror(errno));
    unsigned char *bytes = NULL;
    struct stat found;
    mimo_status status = MIMO_OK;
    if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode))
        status = mimo_fail(MIMO_ERR_IO, "the sample file %s is no ordinary file", path);
    if (status == MIMO_OK)
        status = memory_reserve(&bytes, found.st_size, 1);
    if (status == MIMO_OK)
        status = read_bytes(fd, bytes, found.st_size, path);
    close(fd);
    if (status != MIMO_OK) {
        memory_release(bytes);
        return status;
    }
    *out = bytes;
    *size = found.st_size;
    return MIMO_OK;
}

static mimo_status get_header(struct header *header, const unsigned char *bytes, int64_t size,
                              const char *path)
{
    CHECK(size >= HEADER_BYTES, MIMO_ERR_IO,
          "the sample file %s is cut short: %" PRId64 " bytes, the header alone has %d", path, size,
          HEADER_BYTES);
    CHECK(memcmp(bytes, magic, sizeof magic) == 0, MIMO_ERR_IO,
          "%s is no sample file: it does not begin with \"MIMOEMJI\"", path);
    uint64_t version = get_little_endian(bytes + 8, 4);
    CHECK(version == VERSION, MIMO_ERR_IO,
          "the sample file %s has version %" PRIu64 ", this program reads %d", path, version,
          VERSION);
    uint64_t image_size = get_little_endian(bytes + 12, 4);
    uint64_t count = get_little_endian(bytes + 16, 8);
    uint64_t body = get_little_endian(bytes + 24, 8);
    CHECK(image_size >= SAMPLE_SMALLEST_IMAGE && image_size <= SAMPLE_LARGEST_IMAGE, MIMO_ERR_IO,
          "the sample file %s has images of %" PRIu64 " pixels, not %d to %d", path, image_size,
          SAMPLE_SMALLEST_IMAGE, SAMPLE_LARGEST_IMAGE);
    CHECK(body == (uint64_t)(size - HEADER_BYTES), MIMO_ERR_IO,
          "the sample file %s promises %" PRIu64 " bytes of samples and has %" PRId64, path, body,
          size - HEADER_BYTES);
    uint64_t smallest = RECORD_PREFIX + 1 + image_bytes((int64_t)image_size);
    CHECK(count >= 1 && count <= body / smallest, MIMO_ERR_IO,
          "the sample file %s promises %" PRIu64 " samples in %" PRIu64 " bytes", path, count,
          body);
    *header = (struct header){.image_size = (int64_t)image_size,
                              .count = (int64_t)count,
                              .body_bytes = (int64_t)body,
                              .source = get_little_endian(bytes + 32, 8),
                              .checksum = get_little_endian(bytes + 40, 8)};
    return MIMO_OK;
}

/* One sample out of its bytes; *used is how many they were. */
static mimo_status get_record(struct samples *samples, int64_t i, const unsigned char *record,
                              int64_t left, int64_t *used)
{
    int64_t pixels = (int64_t)image_bytes(samples->image_size);
    int64_t length = left >= RECORD_PREFIX ? record[1] : 0;
    CHECK(left >= RECORD_PREFIX + length + pixels, MIMO_ERR_IO,
          "sample %" PRId64 " of %" PRId64 " is cut short: %" PRId64 " bytes are left", i,
          samples->count, left);
    CHECK(record[0] <= 1, MIMO_ERR_IO, "sample %" PRId64 " has held-out mark %d, not 0 or 1", i,
          record[0]);
    CHECK(length >= 1 && length <= SAMPLE_NAME_CAPACITY, MIMO_ERR_IO,
          "sample %" PRId64 " has a name of %" PRId64 " bytes, not 1 to %d", i, length,
          SAMPLE_NAME_CAPACITY);
    const char *name = (const char *)record + RECORD_PREFIX;
    size_t good = utf8_printable(name, (size_t)length);
    CHECK(good == (size_t)length, MIMO_ERR_IO,
          "sample %" PRId64 " has a name that is not UTF-8 at its byte %zu", i, good);
    samples->held_out[i] = record[0];
    samples->held_out_count += record[0];
    samples->name_length[i] = (uint8_t)length;
    memcpy(sample_name(samples, i), name, (size_t)length);
    memcpy(sample_image(samples, i), record + RECORD_PREFIX + length, (size_t)pixels);
    *used = RECORD_PREFIX + length + pixels;
    return MIMO_OK;
}

static mimo_status get_records(struct samples *samples, const unsigned char *bytes,
                               const struct header *header)
{
    uint64_t checksum = hash_bytes(HASH_START, bytes, HASHED_BYTES);
    const unsigned char *record = bytes + HEADER_BYTES;
    int64_t left = header->body_bytes;
    for (int64_t i = 0; i < header->count; i++) {
        int64_t used = 0;
        TRY(get_record(samples, i, record, left, &used));
        checksum = hash_bytes(checksum, record, (size_t)used);
        record += used;
        left -= used;
    }
    CHECK(left == 0, MIMO_ERR_IO, "%" PRId64 " bytes follow the last of %" PRId64 " samples", left,
          header->count);
    CHECK(checksum == header->checksum, MIMO_ERR_IO,
          "checksum %016" PRIx64 " where the header says %016" PRIx64, checksum, header->checksum);
    return MIMO_OK;
}

mimo_status sample_file_read(struct samples *out, const char *path)
{
    unsigned char *bytes = NULL;
    int64_t size = 0;
    struct header header = {0};
    struct samples samples = {0};
    mimo_status status;
    TRY_GOTO(status, done, read_whole(&bytes, &size, path));
    TRY_GOTO(status, done, get_header(&header, bytes, size, path));
    TRY_GOTO(status, done, samples_create(&samples, header.count, header.image_size));
    samples.source = header.source;
    samples.content = (struct file_content){size, header.checksum};
    status = get_records(&samples, bytes, &header);
    if (status != MIMO_OK)
        fail_prefix(status, "the sample file %s is damaged: ", path);
done:
    memory_release(bytes);
    if (status == MIMO_OK)
        *out = samples;
    else
        samples_release(&samples);
    return status;
}
