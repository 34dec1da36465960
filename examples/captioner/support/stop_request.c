#include "captioner/support/stop_request.h"

#include <stddef.h>

enum { SIGNALS = 2 };
static const int numbers[SIGNALS] = {SIGTERM, SIGINT};
static const char *const names[SIGNALS] = {"SIGTERM", "SIGINT"};

static volatile sig_atomic_t heard; /* a handler reaches nothing else */

static void hear(int number)
{
    heard = number;
}

void stop_request_begin(struct stop_request *request)
{
    struct sigaction action = {.sa_handler = hear, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    heard = 0;
    for (int i = 0; i < SIGNALS; i++)
        sigaction(numbers[i], &action, &request->before[i]);
}

void stop_request_end(const struct stop_request *request)
{
    for (int i = 0; i < SIGNALS; i++)
        sigaction(numbers[i], &request->before[i], NULL);
}

const char *stop_request_heard(void)
{
    for (int i = 0; i < SIGNALS; i++)
        if (heard == numbers[i])
            return names[i];
    return NULL;
}
