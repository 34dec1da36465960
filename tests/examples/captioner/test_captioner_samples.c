/* The sample file: a written file is read back, and any other file is refused. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "captioner/data/sample_file.h"
#include "train/support/folders.h"
#include "train/support/little_endian.h"
#include "core/check.h"
#include "core/hash.h"
#include "own_folder.h"
#include "same_bits.h"

enum { SIDE = 8, COUNT = 3, HEADER = 48, PIXELS = SIDE * SIDE * 3 };

OWN_FOLDER(samples, "x.samples", .timeout = 60);
TestSuite(folders, .init = make_folder, .fini = remove_folder);

static int entries(void)
{
    int count = 0;
    DIR *open = opendir(folder);
    cr_assert(open);
    while (readdir(open))
        count++;
    closedir(open);
    return count - 2;
}

static struct samples example(void)
{
    static const char *const names[COUNT] = {"grinning face", "Leo", "\xc3\x85land"};
    struct samples s = {0};
    SUCCEEDS(samples_create(&s, COUNT, SIDE));
    for (int64_t i = 0; i < COUNT; i++) {
        strcpy(sample_name(&s, i), names[i]);
        s.name_length[i] = (uint8_t)strlen(names[i]);
        s.held_out[i] = i == 1;
        for (int64_t p = 0; p < PIXELS; p++)
            sample_image(&s, i)[p] = (uint8_t)(mimo_mix64((uint64_t)(i * PIXELS + p)) >> 56);
    }
    s.source = UINT64_C(0xfedcba9876543210);
    return s;
}

Test(samples, round_trip)
{
    struct samples s = example(), back = {0};
    SUCCEEDS(sample_file_write(path, &s));
    SUCCEEDS(sample_file_read(&back, path));
    cr_assert(back.count == COUNT && back.image_size == SIDE && back.held_out_count == 1);
    cr_assert_eq(back.source, s.source);
    for (int64_t i = 0; i < COUNT; i++) {
        cr_assert_str_eq(sample_name(&back, i), sample_name(&s, i));
        cr_assert_eq(back.name_length[i], s.name_length[i]);
        cr_assert_eq(back.held_out[i], s.held_out[i]);
        EXPECT_BITS(bits_of(sample_image(&back, i), sample_image(&s, i), PIXELS, 1, 0), "image %d",
                    (int)i);
    }
    samples_release(&s);
    samples_release(&back);
}

/* The example file in memory, to be damaged and written back. */
static long load(unsigned char *bytes, size_t room)
{
    struct samples s = example();
    SUCCEEDS(sample_file_write(path, &s));
    samples_release(&s);
    size_t size = get_file(path, bytes, room);
    cr_assert_eq(size, HEADER + COUNT * (2 + PIXELS) + 13 + 3 + 6);
    return (long)size;
}

static mimo_status read_bytes(const unsigned char *bytes, long size)
{
    struct samples back = {.count = -7};
    put_file(path, bytes, (size_t)size);
    mimo_status status = sample_file_read(&back, path);
    if (status == MIMO_OK)
        samples_release(&back);
    else
        cr_assert_eq(back.count, -7, "a failed call leaves its output");
    return status;
}

Test(samples, every_flipped_byte_and_every_cut_is_found)
{
    unsigned char bytes[1024];
    long size = load(bytes, sizeof bytes);
    SUCCEEDS(read_bytes(bytes, size));
    for (long i = 0; i < size; i++) {
        bytes[i] ^= 0x81;
        FAILS(read_bytes(bytes, size), MIMO_ERR_IO, path);
        bytes[i] ^= 0x81;
    }
    for (long cut = 0; cut < size; cut++)
        cr_assert_eq(read_bytes(bytes, cut), MIMO_ERR_IO, "cut to %ld bytes", cut);
    bytes[size] = 0;
    cr_assert_eq(read_bytes(bytes, size + 1), MIMO_ERR_IO, "a byte too many");
}

static void put_checksum(unsigned char *bytes, long size)
{
    /* Hash the header and each record. The bytes give the lengths of the records. */
    uint64_t hash = mimo_hash_bytes(MIMO_HASH_START, bytes, 40);
    for (long at = HEADER; at + 1 < size;) {
        long length = 2 + bytes[at + 1] + PIXELS;
        hash = mimo_hash_bytes(hash, bytes + at, (size_t)(at + length > size ? size - at : length));
        at += length;
    }
    put_little_endian(bytes + 40, hash, 8);
}

Test(samples, hostile_files_with_a_right_checksum)
{
    static const struct {
        int at, bytes;
        uint64_t value;
        const char *part;
    } cases[] = {
        {8, 4, 2, "has version 2, this program reads 1"},
        {12, 4, 0, "images of 0 pixels, not 8 to 136"},
        {12, 4, 0xffffffff, "images of 4294967295 pixels"},
        {16, 8, 0, "promises 0 samples"},
        {16, 8, UINT64_MAX, "promises 18446744073709551615 samples in"},
        {16, 8, 2, "bytes follow the last of 2 samples"},
        {24, 8, UINT64_MAX, "promises 18446744073709551615 bytes of samples and has"},
        {48, 1, 2, "sample 0 has held-out mark 2, not 0 or 1"},
        {49, 1, 0, "sample 0 has a name of 0 bytes, not 1 to 80"},
        {49, 1, 81, "sample 0 has a name of 81 bytes, not 1 to 80"},
        {50, 1, 0xff, "not UTF-8 at its byte 0"},
        {51, 1, '\n', "not UTF-8 at its byte 1"},
        {12, 4, 9, "promises 3 samples"},
    };
    unsigned char good[1024], bytes[1024];
    long size = load(good, sizeof good);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(bytes, good, sizeof good);
        put_little_endian(bytes + cases[i].at, cases[i].value, cases[i].bytes);
        put_checksum(bytes, size);
        FAILS(read_bytes(bytes, size), MIMO_ERR_IO, cases[i].part);
    }
}

Test(samples, what_is_no_file)
{
    struct samples back;
    FAILS(sample_file_read(&back, path), MIMO_ERR_NOT_FOUND, path);
    FAILS(sample_file_read(&back, folder), MIMO_ERR_IO, "no ordinary file");
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(sample_file_read(&back, path), MIMO_ERR_IO, "a pipe must not hold us");
    FAILS(samples_create(&back, 1, 7), MIMO_ERR_ARGUMENT, "8 to 136 pixels a side, not 7");
}

Test(samples, a_write_that_fails_leaves_the_old_file)
{
    struct samples s = example(), back = {0};
    SUCCEEDS(sample_file_write(path, &s));
    struct rlimit before = limit_files(300);
    mimo_status status = sample_file_write(path, &s);
    setrlimit(RLIMIT_FSIZE, &before);
    FAILS(status, MIMO_ERR_IO, path, "too large");
    cr_assert_eq(entries(), 1, "no half file is left");
    SUCCEEDS(sample_file_read(&back, path));
    samples_release(&back);
    samples_release(&s);
}

Test(samples, a_folder_that_is_not_there)
{
    struct samples s = example();
    FAILS(sample_file_write("/nowhere/x.samples", &s), MIMO_ERR_IO, "/nowhere/x.samples");
    samples_release(&s);
}

Test(folders, are_made_and_unmade_again)
{
    char first[128], deep[160];
    struct stat found;
    size_t kept;
    snprintf(first, sizeof first, "%s/a", folder);
    snprintf(deep, sizeof deep, "%s/a/b//c/", folder);
    SUCCEEDS(make_folders(deep, &kept));
    cr_assert(stat(deep, &found) == 0);
    cr_assert_eq(kept, strlen(folder) + 1, "kept %zu", kept);
    remove_folders(deep, kept);
    cr_assert_eq(entries(), 0, "%s is left", first);

    SUCCEEDS(make_folders(first, &kept));
    SUCCEEDS(make_folders(deep, &kept));
    remove_folders(deep, kept);
    cr_assert_eq(rmdir(first), 0, "what was there before stays, and it is empty");

    SUCCEEDS(make_folders(folder, &kept));
    remove_folders(folder, kept);
    cr_assert_eq(stat(folder, &found), 0, "nothing was made, so nothing is removed");
}

Test(folders, a_failure_leaves_none)
{
    char below[512], long_name[300];
    size_t kept = 7;
    snprintf(below, sizeof below, "%s/f/g", folder);
    snprintf(path, sizeof path, "%s/f", folder); /* removed at the end */
    put_file(path, "", 0);
    FAILS(make_folders(below, &kept), MIMO_ERR_IO, below);

    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    snprintf(below, sizeof below, "%s/a/b/%s", folder, long_name);
    FAILS(make_folders(below, &kept), MIMO_ERR_IO, "too long");
    cr_assert_eq(kept, 7, "a failed call leaves its output");
    cr_assert_eq(entries(), 1, "only the file is there");
}
