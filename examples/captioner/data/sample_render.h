/*
 * From a font and a list of emoji to samples, and the cache that holds them. Rendering needs the
 * module captioner-render (FreeType, HarfBuzz), which is loaded for as long as it takes.
 */
#ifndef CAPTIONER_SAMPLE_RENDER_H
#define CAPTIONER_SAMPLE_RENDER_H

#include "captioner/data/sample_file.h"

#define SAMPLE_FONT_DEFAULT_PATH "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"

/* What samples are rendered from. */
struct sample_source {
    const char *font;          /* NULL: SAMPLE_FONT_DEFAULT_PATH */
    const char *emoji_test;    /* NULL: EMOJI_LIST_DEFAULT_PATH */
    const char *names;         /* emoji_names.h; NULL: the names of the list */
    const char *module_folder; /* where captioner-render.so lies; NULL: see plugin.h */
    int64_t image_size;        /* pixels a side */
};

/**
 * Render every emoji of the source that has a name, in the order of the list; the caller releases
 * *out with samples_release. One line on stderr counts the emoji that `names` leaves out.
 *
 * Errors: MIMO_ERR_ARGUMENT (image size), MIMO_ERR_NOT_FOUND (font, list, names or a glyph is
 * missing),
 * MIMO_ERR_UNSUPPORTED (no module, or no colour font), MIMO_ERR_IO (a file is cut short or
 * damaged).
 */
mimo_status samples_render(struct samples *out, const struct sample_source *source);

/** Render into the file at `path`, which appears whole or not at all (MIMO_ERR_IO on a full
 *  disk). */
mimo_status sample_file_prepare(const char *path, const struct sample_source *source);

/** The cache of samples of one size: emoji-N.samples in $XDG_CACHE_HOME/mimo-bridge or
 *  $HOME/.cache/mimo-bridge; with `names`, emoji-N-HASH.samples, by the hash of their path. The
 *  caller releases *out with memory_release. MIMO_ERR_NOT_FOUND where neither variable is set. */
mimo_status sample_cache_path(char **out, const struct sample_source *source);

/**
 * Make sure that the cache holds the samples of this source, rendering them where it does not,
 * holds others or is damaged. To be called on one rank; then all ranks read the file at *path
 * (released with memory_release). Where the installed font or list is gone, a sound cache is used
 * as it is; one that the source names must be there.
 */
mimo_status sample_cache_fill(char **path, const struct sample_source *source);

#endif
