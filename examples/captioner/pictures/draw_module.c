/* captioner-pictures: the symbol that the program looks for. */
#include "captioner/pictures/draw_contact_sheet.h"
#include "captioner/pictures/draw_loss_curve.h"

extern const struct pictures_module captioner_pictures_module;

__attribute__((visibility("default"))) const struct pictures_module captioner_pictures_module = {
    .version = PICTURES_MODULE_VERSION,
    .contact_sheet = draw_contact_sheet,
    .loss_curve = draw_loss_curve,
};
