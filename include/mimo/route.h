/*
 * Routes: which row of which expert each token has. Pure, local, without a communicator: any
 * process can ask about any rank of a group. <mimo/dispatch.h> moves the rows. All of this header
 * is experimental: it declares nothing where MIMO_EXPERIMENTAL is not defined.
 *
 *   P = etp * ep  ranks of a group. Rank p = t + etp * x has coordinates t along etp and x along ep
 *   E             experts. Expert e lies on the etp ranks of x = e / (E / ep), a part on each
 *   k             choices of a token: each is an expert, or -1 for none
 *
 * A *pair* is a token and a choice that names an expert. A *tile* holds the rows of a rank's
 * experts, one for each pair, in ascending order of
 *
 *   (expert, rank of the token, token, choice)
 *
 * The first row of each expert is a multiple of `alignment`. The rows between experts are padding:
 * zeros. All ranks of one x have the same tile.
 *
 * A token's row crosses to a rank once, whatever number of its pairs lie there. The *block* of two
 * ranks is the tokens of the one that have a pair on the other, in order.
 */
#ifndef MIMO_ROUTE_H
#define MIMO_ROUTE_H

#include <stdint.h>
#include <stdio.h>

#include <mimo/tensor.h>

MIMO_BEGIN_DECLS

#ifdef MIMO_EXPERIMENTAL

/** What one rank brings to a route. */
typedef struct mimo_route_desc {
    size_t size;         /* set by the initializer */
    const void *ids;     /* ids[tokens, k]: the experts of each token; -1: none. NULL where there
                            are no tokens */
    mimo_dtype id_dtype; /* MIMO_I32 or MIMO_I64 */
    int64_t tokens;      /* may differ between ranks, and be 0 */
    int64_t capacity;    /* rows that this rank's tile has; -1: as many as it needs */
    mimo_memory memory;  /* where the ids lie: where the communicator's tensors do */
} mimo_route_desc;

#define MIMO_ROUTE_DESC_INIT                                             \
    {                                                                    \
        sizeof(mimo_route_desc), NULL, MIMO_I32, 0, -1, MIMO_MEMORY_HOST \
    }

MIMO_API void mimo_route_desc_init(mimo_route_desc *out, size_t size);

/** What all ranks of a group bring to a route. */
typedef struct mimo_routing {
    size_t size;                  /* set by the initializer */
    int64_t experts, top_k;       /* E, at most 65535; k, at most E */
    int64_t etp, alignment;       /* 1 and more */
    const mimo_route_desc *ranks; /* ranks[rank_count]; borrowed */
    int64_t rank_count;           /* P */
} mimo_routing;

#define MIMO_ROUTING_INIT                         \
    {                                             \
        sizeof(mimo_routing), 0, 1, 1, 1, NULL, 0 \
    }

MIMO_API void mimo_routing_init(mimo_routing *out, size_t size);

/**
 * Prove the routes of all ranks of a group:
 *   - every pair has one row, on each rank of its expert, and no row has two;
 *   - rows stand in the order above, and experts begin where their counts and the alignment say;
 *   - the blocks of two ranks are the same on both, forth and back;
 *   - a sum has each row of its token once.
 *
 * It makes the routes of all ranks, and holds them at once: for tests and tools. Thread-safe.
 * MIMO_ERR_INTERNAL names the first rank, token and choice that break a rule. A tile that has fewer
 * rows than it needs breaks none.
 *
 * Other errors: MIMO_ERR_ARGUMENT, MIMO_ERR_GRID (E and P are no multiples of ep and etp),
 * MIMO_ERR_SHAPE (an id that is no expert: the sentence has rank, token and choice),
 * MIMO_ERR_UNSUPPORTED (ids that lie in no host memory),
 * MIMO_ERR_OVERFLOW (2^31 pairs and more).
 */
MIMO_API mimo_status mimo_route_check(const mimo_routing *routing);

/**
 * Write the route of one rank to a stream, in a form that is stable enough to be stored as golden
 * text: the rows that its tile needs and has, the pairs of each expert as (rank, token, choice),
 * the tokens that it sends to each rank with their rows there, those that it receives, and the
 * tokens of its own that lose a pair where a tile is too small. Thread-safe. Errors as above, and
 * MIMO_ERR_IO where the stream fails.
 */
MIMO_API mimo_status mimo_route_print(FILE *stream, const mimo_routing *routing, int64_t rank);

/** The lines of mimo_route_print as text: at most capacity - 1 characters into `text` (always
 *  terminated; NULL where capacity is 0), and the length of the whole into *length (may be NULL).
 *  MIMO_ERR_ARGUMENT: capacity < 0. */
MIMO_API mimo_status mimo_route_text(int64_t *length, char *text, int64_t capacity,
                                     const mimo_routing *routing, int64_t rank);

#endif

MIMO_END_DECLS

#endif
