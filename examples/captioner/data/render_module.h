/*
 * The face of captioner-render, the module that turns an emoji into pixels. It is loaded only while
 * samples are rendered, and it alone links FreeType and HarfBuzz. Plain C: errors are a status and
 * a sentence in the caller's room, and nothing of the program is called back.
 */
#ifndef CAPTIONER_RENDER_MODULE_H
#define CAPTIONER_RENDER_MODULE_H

#include <stdint.h>

#include <mimo/status.h>

#include "captioner/support/plugin.h"

#define RENDER_MODULE_SYMBOL "captioner_render_module"

enum { RENDER_MODULE_VERSION = 1 };

struct render_font; /* one open font; the module's own */

struct render_module {
    unsigned version; /* RENDER_MODULE_VERSION */

    /* Open a colour bitmap font. MIMO_ERR_NOT_FOUND where there is no file; MIMO_ERR_IO where it is
     * cut short or no font; MIMO_ERR_UNSUPPORTED where it has no colour bitmaps. */
    mimo_status (*open)(struct render_font **out, const char *path, struct plugin_sentence *why);

    /* Shape codes[count] to its one glyph, and draw it on white in the middle of a square. rgb gets
     * size x size x 3 bytes, box-filtered, rows from the top. `size` is 1 to RENDER_LARGEST. The
     * same input gives the same bytes on every machine: integer arithmetic throughout.
     * MIMO_ERR_NOT_FOUND where the font has no glyph, or several, for the sequence. */
    mimo_status (*draw)(struct render_font *font, const uint32_t *codes, int count, int size,
                        uint8_t *rgb, struct plugin_sentence *why);

    void (*close)(struct render_font *font); /* NULL is fine */
};

/* The strike of the emoji font is this many pixels wide: images are only made smaller. */
enum { RENDER_LARGEST = 136 };

#endif
