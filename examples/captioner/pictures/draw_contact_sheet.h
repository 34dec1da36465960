/* The contact sheet, within the module captioner-pictures. */
#ifndef CAPTIONER_DRAW_CONTACT_SHEET_H
#define CAPTIONER_DRAW_CONTACT_SHEET_H

#include "captioner/pictures/pictures_module.h"

mimo_status draw_contact_sheet(const struct contact_sheet *sheet, const struct picture_sink *sink,
                               struct plugin_sentence *why);

#endif
