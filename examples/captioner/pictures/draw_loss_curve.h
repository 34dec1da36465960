/* The loss curve, within the module captioner-pictures. */
#ifndef CAPTIONER_DRAW_LOSS_CURVE_H
#define CAPTIONER_DRAW_LOSS_CURVE_H

#include "captioner/pictures/pictures_module.h"

mimo_status draw_loss_curve(const struct loss_curve *curve, const struct picture_sink *sink,
                            struct plugin_sentence *why);

#endif
