#include "comm/mpi/mpi_survivors.h"

#include <string.h>

#include "comm/mpi/mpi_types.h"
#include "core/memory.h"

/* No other message of a communicator has the first tag. Open MPI uses that of a group for messages
 * of its own, so each attempt has another one. */
enum { SURVIVOR_TAG = 80, FIRST_GROUP_TAG = 100, GROUP_TAGS = 10000 };

typedef struct letter {
    struct letter *next;
    MPI_Request sending;
    char bytes[];
} letter;

struct mimo_mpi_survivor_mail {
    MPI_Comm handle;
    int64_t bytes; /* of a message */
    letter *sent;  /* that MPI may still read */
};

mimo_status mimo_mpi_survivor_mail_create(mimo_mpi_survivor_mail **out, MPI_Comm handle)
{
    int size = 0;
    MIMO_TRY_MPI(MPI_Comm_size(handle, &size));
    MIMO_TRY(mimo_reserve(out, 1, sizeof **out));
    (*out)->handle = handle;
    (*out)->bytes = mimo_survivors_message_bytes(size);
    return MIMO_OK;
}

/* A rank that is gone may never receive its letters. */
static void release_sent(mimo_mpi_survivor_mail *mail)
{
    for (letter **link = &mail->sent; *link;) {
        letter *it = *link;
        int done = 0;
        if (MPI_Test(&it->sending, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done) {
            link = &it->next;
            continue;
        }
        *link = it->next;
        mimo_release(it);
    }
}

void mimo_mpi_survivor_mail_release(mimo_mpi_survivor_mail *mail, bool may_call_mpi)
{
    if (!mail)
        return;
    if (may_call_mpi)
        release_sent(mail);
    for (letter *it; (it = mail->sent);) {
        mail->sent = it->next;
        mimo_abandon(it);
    }
    mimo_release(mail);
}

static void send(void *context, int to, const mimo_survivors_message *message)
{
    mimo_mpi_survivor_mail *mail = context;
    letter *it;
    if (mimo_reserve(&it, (int64_t)sizeof *it + mail->bytes, 1) != MIMO_OK)
        return;
    memcpy(it->bytes, message, (size_t)mail->bytes);
    if (MPI_Isend(it->bytes, (int)mail->bytes, MPI_BYTE, to, SURVIVOR_TAG, mail->handle,
                  &it->sending) != MPI_SUCCESS) {
        mimo_abandon(it);
        return;
    }
    it->next = mail->sent;
    mail->sent = it;
}

static bool receive(void *context, mimo_survivors_message *out, int64_t bytes)
{
    mimo_mpi_survivor_mail *mail = context;
    int here = 0;
    MPI_Message message;
    MPI_Status from;
    release_sent(mail);
    if (MPI_Improbe(MPI_ANY_SOURCE, SURVIVOR_TAG, mail->handle, &here, &message, &from) !=
            MPI_SUCCESS ||
        !here || MPI_Mrecv(out, (int)bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return false;
    return true;
}

mimo_survivors_carrier mimo_mpi_survivor_carrier(mimo_mpi_survivor_mail *mail)
{
    return (mimo_survivors_carrier){.mail = {send, mail}, .receive = receive};
}

mimo_status mimo_mpi_survivor_group(MPI_Comm *out, MPI_Comm ended,
                                    const mimo_survivors_terms *terms)
{
    MPI_Group all, left;
    *out = MPI_COMM_NULL;
    MIMO_TRY_MPI(MPI_Comm_group(ended, &all));
    int code = MPI_Group_incl(all, terms->count, terms->ranks, &left);
    MPI_Group_free(&all);
    MIMO_TRY(mimo_mpi_status(code, "MPI_Group_incl"));
    code =
        MPI_Comm_create_group(ended, left, FIRST_GROUP_TAG + (int)(terms->round % GROUP_TAGS), out);
    MPI_Group_free(&left);
    MIMO_TRY(mimo_mpi_status(code, "MPI_Comm_create_group"));
    MIMO_TRY_MPI(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN));
    return MIMO_OK;
}
