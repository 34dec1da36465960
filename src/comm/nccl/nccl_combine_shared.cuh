// What the warps of `combine` in bulk share (nccl_combine_bulk.cuh). Hopper and later.
#ifndef MIMO_COMM_NCCL_COMBINE_SHARED_CUH
#define MIMO_COMM_NCCL_COMBINE_SHARED_CUH

#include "comm/nccl/nccl_bulk.cuh"
#include "comm/nccl/nccl_post.cuh"
#include "comm/nccl/nccl_return_items.cuh"

#if MIMO_HAS_BULK

namespace
{

constexpr int kGroups = 2, kGroupWarps = 7; // 20 warps in all have 96 registers each, 21 have 80
constexpr int kAdders = kGroups * kGroupWarps;
constexpr int kScouts = 2;
constexpr int kLoader = kAdders + kScouts, kStorer = kLoader + 1, kPoster = kLoader + 2;
constexpr int kVectors = kGroupWarps * 32; // words of 16 bytes of a job, at most
constexpr int kRecipes = 8;                // of a scout
constexpr int kListed = 32;                // loads of a recipe that the scout has listed
constexpr int kJobs = 16;                  // on their way
constexpr int kOuts = 4;                   // buffers of sums that are written to peers
constexpr uint32_t kKept = 32; // of these sums, those whose flags may be still to be set
constexpr int kVector = 16;

// How a row is cut: into pieces with a flag each, and these into chunks. In words of 16 bytes.
struct Cut {
    int vectors, piece, pieces, chunk;

    __device__ Cut(const Call &call, const mimo_moves_tensor &tensor, int fill, int most)
    {
        const int items = max(1, most_tokens(call) * call.shape.ranks);
        vectors = (int)(tensor.row_bytes / kVector);
        pieces = min(max(1, (fill + items - 1) / items), (vectors + most - 1) / most);
        pieces = min(max(1, pieces), MIMO_EXPERT_PIECES);
        piece = max(1, (vectors + pieces - 1) / pieces);
        pieces = (vectors + piece - 1) / piece;
        const int chunks = (piece + most - 1) / most;
        chunk = (piece + chunks - 1) / chunks;
    }

    __device__ int end(int number) const
    {
        return min(vectors, (number + 1) * piece);
    }
};

// What a launch is told beside the call.
struct Ring {
    int vectors; // of a slot
    int slots;
};

enum RecipeKind { TO_PEER, RESULT, LOST, END };
enum { MOST_PARTS = MIMO_EXPERT_MOST_TOP_K * MIMO_EXPERT_MOST_ETP, OWN_PART = 0x80 };

// Where a load comes from: its first word, and how far behind it a chunk begins.
struct Source {
    const char *base; // NULL: nothing is loaded
    int word, plane;  // bytes from a word to the next; the number of the plane
};

// How a piece of a token is added: rows of this rank in the order of their visits, then the parts
// of an own token in theirs.
struct Recipe {
    RecipeKind kind;
    int rows, parts, loads; // loads: slots of a job
    int at, end, chunk;     // words of the piece, and those of a chunk
    int rank;               // TO_PEER: the peer
    int64_t flag;           // its offset there
    char *to;               // where the row begins: of the result, or of the slot on the peer
    uint64_t row_adds;      // additions behind each row, 4 bits
    Source listed[kListed]; // the first loads
    // For the others:
    const mimo_moves_tensor *tensor;
    int index, token;
    Programs of;
    int row[MIMO_EXPERT_MOST_TOP_K];
    uint8_t part_adds[MOST_PARTS]; // behind each part; OWN_PART: this rank's own, in no slot
};

constexpr int kEnd = kScouts * kRecipes; // the number of no recipe

// A chunk that is added.
struct Job {
    RecipeKind kind;
    int recipe, last; // last: 1 where it is the last chunk of the recipe
    int rows, parts;  // of the recipe, as the next one
    uint64_t row_adds;
    int first, vectors; // its first slot in the ring, and words; slots lie beside each other
    uint32_t out;       // TO_PEER: the number of the sum that goes to a peer
    char *to;           // RESULT, LOST: where the result goes
};

// A sum that goes to a peer.
struct Out {
    char *to;
    uint32_t bytes;
    int rank;     // whose flag is set behind it; -1: none
    int64_t flag; // its offset there
};

struct Shared {
    Recipe recipes[kEnd];
    uint32_t written[kScouts], freed[kScouts]; // recipes
    uint32_t scouted[kScouts];                 // not 0: there are no more
    Job jobs[kJobs];
    int used[kJobs]; // slots
    Out outs[kKept];
    Posts<1> posts;
    uint32_t all_outs; // their number, once it is known; before, ~0
    Program shared;
    uint64_t full[kJobs], empty[kJobs];         // mbarriers: loaded; added
    uint64_t out_full[kOuts], out_empty[kOuts]; // the sum is there; it was read
};

__device__ void open_shared(const Call &call, Shared &shared)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < kJobs; i++) {
            init_barrier(&shared.full[i]);
            init_barrier(&shared.empty[i], kGroupWarps);
        }
        for (int i = 0; i < kOuts; i++) {
            init_barrier(&shared.out_full[i], kGroupWarps);
            init_barrier(&shared.out_empty[i]);
        }
        for (int i = 0; i < kScouts; i++)
            shared.written[i] = shared.freed[i] = shared.scouted[i] = 0;
        shared.all_outs = ~0u;
        shared.shared = Program::read(call, call.tables.shared, 0);
    }
    open_posts(shared.posts);
    open_barriers();
}

} // namespace

#endif

#endif
