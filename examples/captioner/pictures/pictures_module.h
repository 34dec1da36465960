/*
 * The face of captioner-pictures, the module that draws. It is loaded only when pictures are
 * written, and it alone links cairo. It writes no file: PNG bytes go to a sink of the caller's.
 */
#ifndef CAPTIONER_PICTURES_MODULE_H
#define CAPTIONER_PICTURES_MODULE_H

#include <stddef.h>

#include <mimo/status.h>

#include "captioner/pictures/pictures.h"
#include "captioner/support/plugin.h"

#define PICTURES_MODULE_SYMBOL "captioner_pictures_module"

enum { PICTURES_MODULE_VERSION = 3 };

/* Takes the bytes of a PNG, in order. A status other than MIMO_OK ends the drawing. */
struct picture_sink {
    mimo_status (*write)(void *context, const void *data, size_t bytes);
    void *context;
};

struct pictures_module {
    unsigned version; /* PICTURES_MODULE_VERSION */

    /* Draw into the sink. The status of the sink where it failed; MIMO_ERR_MEMORY;
     * MIMO_ERR_INTERNAL for anything else that cairo has against it. */
    mimo_status (*contact_sheet)(const struct contact_sheet *sheet, const struct picture_sink *sink,
                                 struct plugin_sentence *why);
    mimo_status (*loss_curve)(const struct loss_curve *curve, const struct picture_sink *sink,
                              struct plugin_sentence *why);
};

#endif
