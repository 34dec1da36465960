/* Files that appear whole or not at all: what a dead process left, links, who may read them. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "train/support/atomic_file.h"
#include "train/support/link_target.h"
#include "train/support/unfinished_file.h"
#include "core/check.h"
#include "expect_failure.h"

static char folder[] = "/tmp/captioner-results-XXXXXX";
static char path[64], other[64];

static void make_folder(void)
{
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/result", folder);
    snprintf(other, sizeof other, "%s/other", folder);
}

/* The number of files, without `path` and `other`. */
static int others(void)
{
    int count = 0;
    DIR *open = opendir(folder);
    cr_assert(open);
    for (struct dirent *entry; (entry = readdir(open));)
        count += entry->d_name[0] != '.' && strcmp(entry->d_name, "result") != 0 &&
                 strcmp(entry->d_name, "other") != 0;
    closedir(open);
    return count;
}

static void remove_folder(void)
{
    unlink(path);
    unlink(other);
    cr_assert_eq(rmdir(folder), 0, "something was left behind in %s", folder);
}

TestSuite(atomic_file, .init = make_folder, .fini = remove_folder, .timeout = 60);

static void make_file(const char *name, mode_t mode)
{
    int fd = open(name, O_WRONLY | O_CREAT, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, "before", 6), 6);
    cr_assert_eq(fchmod(fd, mode), 0);
    close(fd);
}

static void write_whole(const char *name)
{
    struct atomic_file file = ATOMIC_FILE_INIT;
    SUCCEEDS(atomic_file_open(&file, name));
    SUCCEEDS(atomic_file_write(&file, "after", 5));
    SUCCEEDS(atomic_file_commit(&file));
}

static void expect_text(const char *name, const char *text)
{
    char found[16] = "";
    int fd = open(name, O_RDONLY);
    cr_assert_geq(fd, 0, "%s is missing", name);
    cr_assert_geq(read(fd, found, sizeof found - 1), 0);
    close(fd);
    cr_assert_str_eq(found, text, "%s", name);
}

static mode_t mode_of(const char *name)
{
    struct stat found;
    cr_assert_eq(stat(name, &found), 0, "%s is missing", name);
    return found.st_mode & 0777;
}

Test(atomic_file, only_a_regular_file_is_replaced)
{
    struct atomic_file file = ATOMIC_FILE_INIT;
    cr_assert_eq(atomic_file_open(&file, "/dev/null"), MIMO_ERR_IO);
    cr_assert_str_eq(mimo_last_error(), "cannot write /dev/null: it exists and is no regular file");
}

/* A process that begins to write `path` and dies. */
static void die_while_writing(void)
{
    pid_t child = fork();
    if (child == 0) {
        struct atomic_file file = ATOMIC_FILE_INIT;
        _exit(atomic_file_open(&file, path) != MIMO_OK ||
              atomic_file_write(&file, "half", 4) != MIMO_OK);
    }
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0, "the child could not write");
}

Test(atomic_file, what_dead_processes_left_goes_with_the_next_one)
{
    char notes[96];
    snprintf(notes, sizeof notes, "%s.unfinished-notes", path);
    make_file(notes, 0600);
    make_file(path, 0644);
    die_while_writing();
    die_while_writing();
    cr_assert_eq(others(), 2, "the second one removed what the first one left: %d", others());
    SUCCEEDS(atomic_file_probe(other));
    cr_assert_eq(others(), 2, "that of another result stays");
    SUCCEEDS(atomic_file_probe(path));
    cr_assert_eq(others(), 1, "another's file alone is there: %d", others());
    expect_text(notes, "before");
    expect_text(path, "before");
    unlink(notes);
}

Test(atomic_file, what_is_being_written_stays)
{
    struct atomic_file first = ATOMIC_FILE_INIT, second = ATOMIC_FILE_INIT;
    SUCCEEDS(atomic_file_open(&first, path));
    SUCCEEDS(atomic_file_write(&first, "first", 5));
    SUCCEEDS(atomic_file_open(&second, path));
    cr_assert_eq(others(), 2, "both are there: %d", others());
    SUCCEEDS(atomic_file_write(&second, "second", 6));
    SUCCEEDS(atomic_file_commit(&second));
    expect_text(path, "second");
    SUCCEEDS(atomic_file_commit(&first));
    expect_text(path, "first");
    cr_assert_eq(others(), 0);
}

/* A process of an earlier generation that was stopped in the middle of a save, and wakes. */
Test(atomic_file, a_file_of_another_generation_finds_no_place)
{
    struct atomic_file old = ATOMIC_FILE_INIT, new = ATOMIC_FILE_INIT;
    SUCCEEDS(atomic_file_open(&old, path));
    SUCCEEDS(atomic_file_write(&old, "old", 3));
    SUCCEEDS(atomic_file_remove_of(path, getpid()));
    cr_assert_eq(others(), 1, "that of this generation stays: %d", others());
    unfinished_file_set_generation(3);
    SUCCEEDS(atomic_file_open(&new, path));
    cr_assert(strstr(new.temporary, "-3000"), "%s", new.temporary);
    SUCCEEDS(atomic_file_remove_of(path, getpid() + 1));
    SUCCEEDS(atomic_file_remove_of(other, getpid()));
    cr_assert_eq(others(), 2, "those of another process and of another file stay: %d", others());
    SUCCEEDS(atomic_file_remove_of(path, getpid()));
    cr_assert_eq(others(), 1, "the old one is gone: %d", others());
    FAILS(atomic_file_commit(&old), MIMO_ERR_IO, "cannot rename a finished file to", path);
    SUCCEEDS(atomic_file_write(&new, "new", 3));
    SUCCEEDS(atomic_file_commit(&new));
    expect_text(path, "new");
}

Test(atomic_file, a_file_that_has_its_place_stays_open)
{
    struct atomic_file file = ATOMIC_FILE_INIT;
    int fd = -1;
    make_file(path, 0640);
    SUCCEEDS(atomic_file_open(&file, path));
    SUCCEEDS(atomic_file_write(&file, "one", 3));
    expect_text(path, "before");
    SUCCEEDS(atomic_file_publish(&fd, &file));
    expect_text(path, "one");
    cr_assert_eq(mode_of(path), 0640);
    cr_assert_eq(write(fd, ", two", 5), 5);
    close(fd);
    expect_text(path, "one, two");
}

Test(atomic_file, a_link_leads_to_the_file)
{
    struct stat found;
    cr_assert_eq(symlink("other", path), 0); /* nothing is there yet */
    write_whole(path);
    expect_text(other, "after");
    unlink(other);
    make_file(other, 0600);
    write_whole(path);
    expect_text(other, "after");
    cr_assert(lstat(path, &found) == 0 && S_ISLNK(found.st_mode), "the link is gone");
    unlink(path);
    cr_assert_eq(symlink(other, path), 0, "an absolute one");
    write_whole(path);
    cr_assert(lstat(path, &found) == 0 && S_ISLNK(found.st_mode), "the link is gone");
    unlink(other);
    cr_assert_eq(symlink(path, other), 0);
    FAILS(atomic_file_probe(path), MIMO_ERR_IO, "Too many levels of symbolic links");
}

enum { ME = 1000, OTHER = 2000, OWNER = 3000 };

static bool planted(mode_t folder_mode, uid_t owner, uid_t entry)
{
    const struct stat of_folder = {.st_mode = S_IFDIR | folder_mode, .st_uid = owner};
    const struct stat of_entry = {.st_mode = S_IFLNK | 0777, .st_uid = entry};
    return planted_by_another(&of_folder, &of_entry);
}

/* The kernel's rule, where this process's user is `geteuid`. */
Test(atomic_file, who_may_have_left_a_link)
{
    const uid_t me = geteuid();
    cr_assert(planted(01777, me + OWNER, me + OTHER), "in /tmp");
    cr_assert(planted(01777, me, me + OTHER), "in a folder of this user's own");
    cr_assert_not(planted(01777, me + OWNER, me), "a link of one's own");
    cr_assert_not(planted(01777, me + OWNER, me + OWNER), "one of the folder's owner");
    cr_assert_not(planted(0777, me + OWNER, me + OTHER), "without the sticky bit");
    cr_assert_not(planted(01775, me + OWNER, me + OTHER), "where not all may write");
}

/* In a folder like /tmp, as user ME. Only root can leave a file of another user there. */
Test(atomic_file, what_another_user_left_in_a_sticky_folder)
{
    char entry[96];
    if (geteuid() != 0)
        cr_skip_test("files of other users are made by root alone");
    snprintf(entry, sizeof entry, "user %d, in a folder where anybody may leave one", OTHER);
    make_file(other, 0666);
    cr_assert_eq(chown(other, ME, ME), 0);
    cr_assert_eq(symlink("other", path), 0);
    cr_assert_eq(lchown(path, OTHER, OTHER), 0);
    cr_assert_eq(chmod(folder, 01777), 0);
    FAILS(atomic_file_probe(path), MIMO_ERR_IO, path, entry); /* also root's files are safe */
    cr_assert_eq(seteuid(ME), 0);
    FAILS(atomic_file_probe(path), MIMO_ERR_IO, path, entry);
    SUCCEEDS(atomic_file_probe(other));
    cr_assert_eq(seteuid(0), 0);
    expect_text(other, "before");
    cr_assert_eq(lchown(path, ME, ME), 0);
    cr_assert_eq(seteuid(ME), 0);
    write_whole(path); /* by a link of one's own */
    cr_assert_eq(seteuid(0), 0);
    expect_text(other, "after");
    cr_assert_eq(chown(other, OTHER, OTHER), 0);
    FAILS(atomic_file_probe(other), MIMO_ERR_IO, other,
          "a file of user 2000"); /* of root as well */
    cr_assert_eq(chmod(folder, 01775), 0);
    cr_assert_eq(chown(folder, -1, ME), 0);
    cr_assert_eq(setegid(ME), 0);
    cr_assert_eq(seteuid(ME), 0);
    FAILS(atomic_file_probe(other), MIMO_ERR_IO, other, "replaces only their own");
    cr_assert_eq(seteuid(0), 0);
    cr_assert_eq(setegid(0), 0);
}

Test(atomic_file, who_may_read_stays)
{
    static const mode_t modes[] = {0600, 0640, 0644, 0604, 0400};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        make_file(path, modes[i]);
        write_whole(path);
        expect_text(path, "after");
        cr_assert_eq(mode_of(path), modes[i], "%o became %o", modes[i], mode_of(path));
        unlink(path);
    }
    umask(027);
    write_whole(path);
    cr_assert_eq(mode_of(path), 0640, "a new file has %o", mode_of(path));
    if (geteuid() != 0)
        return;
    struct stat found;
    cr_assert_eq(chown(path, 12345, 54321), 0);
    write_whole(path);
    cr_assert_eq(stat(path, &found), 0);
    cr_assert(found.st_uid == 12345 && found.st_gid == 54321 && mode_of(path) == 0640,
              "owner %u, group %u, %o", found.st_uid, found.st_gid, mode_of(path));
}

static atomic_bool done;

static void *make_results(void *unused)
{
    for (int i = 0; i < 4000; i++)
        if (atomic_file_probe(path) != MIMO_OK)
            break;
    atomic_store(&done, true);
    return unused;
}

/* The umask belongs to the process: another thread's files are as private as ever. */
Test(atomic_file, other_threads_keep_their_umask)
{
    pthread_t thread;
    umask(077);
    cr_assert_eq(pthread_create(&thread, NULL, make_results, NULL), 0);
    int64_t made = 0, open_to_all = 0;
    for (; !atomic_load(&done); made++) {
        int fd = open(other, O_WRONLY | O_CREAT | O_EXCL, 0666);
        struct stat found;
        cr_assert(fd >= 0 && fstat(fd, &found) == 0);
        open_to_all += (found.st_mode & 0777) != 0600;
        close(fd);
        unlink(other);
    }
    pthread_join(thread, NULL);
    cr_assert_gt(made, 100);
    cr_assert_eq(open_to_all, 0, "%lld of %lld files", (long long)open_to_all, (long long)made);
}
