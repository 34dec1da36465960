/*
 * Patterns of a model's layers, as Megatron-LM's hybrid models write them: a letter a layer, such
 * as "M*-M*-". Pure.
 *
 *   pattern := main ('/' mtp)*      main := segment ('|' segment)*      segment := item*
 *   item    := layer | '[' layer+ ']'                                   mtp     := layer+
 *
 * Layers are of three classes: mixers M, self attentions G * D C H + W, and MLPs - E. A group in
 * brackets is one transformer layer in checkpoints: it has each class once at most, the MLP last.
 * '*' stands in no pattern with D, C, H, W or +. '|' cuts the model into segments for pipeline
 * stages. All MTP parts (multi-token prediction, behind '/') are the same. They lie on the last
 * stage, behind the model's last chunk, also where that has no layer.
 *
 * A layer's *number* counts letters, its *item* counts items, both from 0 over the main part.
 */
#ifndef MIMO_LAYER_PATTERN_H
#define MIMO_LAYER_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#include <mimo/status.h>

typedef enum mimo_layer_class {
    MIMO_LAYER_NONE, /* the letter is no layer */
    MIMO_LAYER_MIXER,
    MIMO_LAYER_ATTENTION,
    MIMO_LAYER_MLP,
} mimo_layer_class;

mimo_layer_class mimo_layer_class_of(char symbol);

/* "mixer", "self_attention", "mlp": also the names in keys. */
const char *mimo_layer_class_name(mimo_layer_class kind);

typedef struct mimo_pattern_layer {
    char symbol;
    bool grouped; /* stands in brackets */
    int64_t item;
} mimo_pattern_layer;

/* Layers [begin, end) and items [first_item, end_item). */
typedef struct mimo_pattern_segment {
    int64_t begin, end, first_item, end_item;
} mimo_pattern_segment;

typedef struct mimo_pattern {
    mimo_pattern_layer *layers;     /* layers[count], of the main part */
    mimo_pattern_segment *segments; /* segments[nsegments], as they are written */
    int64_t count, items, nsegments;
    bool grouped; /* the main part has brackets: keys count items */
    char *mtp;    /* the layers of an MTP part; "" */
    int64_t mtp_parts;
} mimo_pattern;

/* Read a pattern. The caller owns *out (mimo_pattern_destroy). MIMO_ERR_ARGUMENT has the column,
 * from 1, of the first letter that breaks a rule. */
mimo_status mimo_pattern_create(mimo_pattern **out, const char *text);
void mimo_pattern_destroy(mimo_pattern *pattern);

/* How the pattern lies on pp stages. *chunks: V. Segment v * pp + p of the result is chunk v of
 * stage p; the caller releases *out by mimo_pattern_release_cut. Without '|' and with pp > 1 the
 * layers are dealt out evenly. MIMO_ERR_ARGUMENT: segments or layers do not divide, or a group
 * would be cut. */
mimo_status mimo_pattern_cut(mimo_pattern_segment **out, int64_t *chunks,
                             const mimo_pattern *pattern, int64_t pp);
void mimo_pattern_release_cut(mimo_pattern_segment *segments);

#endif
