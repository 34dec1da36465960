/* Runs the one test of a program that --filter names. */
#include <criterion/criterion.h>

#include <string.h>

static plain_test *tests;

void plain_test_add(plain_test *test)
{
    test->next = tests;
    tests = test;
}

static const plain_test *find(const char *filter)
{
    char full[256];
    const plain_test *test = tests;
    for (; test; test = test->next) {
        snprintf(full, sizeof full, "%s/%s", test->suite, test->name);
        if (strcmp(full, filter) == 0)
            break;
    }
    return test;
}

int main(int argc, char **argv)
{
    const plain_test *test = argc == 3 && strcmp(argv[1], "--filter") == 0 ? find(argv[2]) : NULL;
    if (!test)
        PLAIN_END(1, "usage: %s --filter suite/name", argv[0]);
    test->body();
    return 0;
}
