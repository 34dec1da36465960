/* captioner-render: HarfBuzz shapes, FreeType loads, integers composite and filter. */
#include "captioner/data/render_module.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ft2build.h>
#include FT_FREETYPE_H
#include <hb.h>
#include <hb-ft.h>

#include "captioner/data/box_filter.h"

struct render_font {
    char *path;
    FT_Library library;
    FT_Face face;
    hb_font_t *shaper;
    hb_buffer_t *buffer;
    uint8_t canvas[RENDER_LARGEST * RENDER_LARGEST * 3];
};

MIMO_PRINTF(3, 4)
static mimo_status explain(struct plugin_sentence *why, mimo_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return status;
}

static uint32_t big_endian(const unsigned char *byte, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | byte[i];
    return value;
}

enum {
    FONT_HEADER_BYTES = 12, /* version, number of tables, search hints */
    TABLE_ENTRY_BYTES = 16, /* tag, checksum, offset, length */
    FONT_MOST_TABLES = 4096,
};

/* The bytes that the font's own directory of tables promises; -1 where there is none. */
static int64_t promised_bytes(FILE *file)
{
    unsigned char header[FONT_HEADER_BYTES];
    if (fread(header, sizeof header, 1, file) != 1)
        return -1;
    uint32_t version = big_endian(header, 4);
    uint32_t tables = big_endian(header + 4, 2);
    if ((version != 0x00010000 && version != 0x4f54544f /* OTTO */) || tables > FONT_MOST_TABLES)
        return -1;
    int64_t most = FONT_HEADER_BYTES + (int64_t)tables * TABLE_ENTRY_BYTES;
    for (uint32_t i = 0; i < tables; i++) {
        unsigned char entry[TABLE_ENTRY_BYTES];
        if (fread(entry, sizeof entry, 1, file) != 1)
            break;
        int64_t end = (int64_t)big_endian(entry + 8, 4) + big_endian(entry + 12, 4);
        most = end > most ? end : most;
    }
    return most;
}

/* A pipe with nobody at its other end must not hold us. */
static FILE *open_at_once(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (fd >= 0 && !file)
        close(fd);
    return file;
}

/* FreeType passes over tables that lie past the end of the file, so a font that is cut short would
 * only look poor: ask its directory first. */
static mimo_status check_whole(const char *path, struct plugin_sentence *why)
{
    FILE *file = open_at_once(path);
    if (!file)
        return explain(why, errno == ENOENT ? MIMO_ERR_NOT_FOUND : MIMO_ERR_IO,
                       "cannot open the font %s: %s (Debian package fonts-noto-color-emoji)", path,
                       strerror(errno));
    struct stat found = {.st_size = 0};
    bool regular = fstat(fileno(file), &found) == 0 && S_ISREG(found.st_mode);
    int64_t promised = regular ? promised_bytes(file) : -1;
    fclose(file);
    if (!regular)
        return explain(why, MIMO_ERR_IO, "the font %s is no ordinary file", path);
    if (promised < 0)
        return explain(why, MIMO_ERR_IO, "%s is no TrueType or OpenType font", path);
    if (promised > found.st_size)
        return explain(why, MIMO_ERR_IO,
                       "the font %s is cut short: its tables reach byte %lld, the file has %lld",
                       path, (long long)promised, (long long)found.st_size);
    return MIMO_OK;
}

static mimo_status open_face(struct render_font *font, struct plugin_sentence *why)
{
    FT_Error error = FT_Init_FreeType(&font->library);
    if (error)
        return explain(why, MIMO_ERR_MEMORY, "FreeType does not start: error %d", error);
    error = FT_New_Face(font->library, font->path, 0, &font->face);
    if (error)
        return explain(why, MIMO_ERR_IO, "the font %s is damaged: FreeType error %d", font->path,
                       error);
    if (!FT_HAS_COLOR(font->face) || font->face->num_fixed_sizes < 1)
        return explain(why, MIMO_ERR_UNSUPPORTED,
                       "the font %s has no colour bitmaps (%d strikes): a font such as "
                       "NotoColorEmoji.ttf of the Debian package fonts-noto-color-emoji has",
                       font->path, font->face->num_fixed_sizes);
    error = FT_Select_Size(font->face, 0); /* the strike; scalable sizes fail on such a font */
    if (error)
        return explain(why, MIMO_ERR_IO, "the font %s refuses its strike: FreeType error %d",
                       font->path, error);
    font->shaper = hb_ft_font_create_referenced(font->face);
    font->buffer = hb_buffer_create();
    if (!hb_buffer_allocation_successful(font->buffer))
        return explain(why, MIMO_ERR_MEMORY, "out of memory for a HarfBuzz buffer");
    return MIMO_OK;
}

static void close_font(struct render_font *font)
{
    if (!font)
        return;
    hb_buffer_destroy(font->buffer);
    hb_font_destroy(font->shaper);
    if (font->face)
        FT_Done_Face(font->face);
    if (font->library)
        FT_Done_FreeType(font->library);
    free(font->path);
    free(font);
}

static mimo_status open_font(struct render_font **out, const char *path,
                             struct plugin_sentence *why)
{
    mimo_status status = check_whole(path, why);
    if (status != MIMO_OK)
        return status;
    struct render_font *font = calloc(1, sizeof *font);
    if (!font || !(font->path = strdup(path)))
        status = explain(why, MIMO_ERR_MEMORY, "out of memory opening %s", path);
    else
        status = open_face(font, why);
    if (status != MIMO_OK) {
        close_font(font);
        return status;
    }
    *out = font;
    return MIMO_OK;
}

/* The code points as "U+1F44B U+1F3FB", for sentences. */
static const char *spell(char text[128], const uint32_t *codes, int count)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < count && used < 100; i++)
        used += (size_t)snprintf(text + used, 128 - used, "%sU+%04X", i ? " " : "", codes[i]);
    return text;
}

static mimo_status shape(struct render_font *font, const uint32_t *codes, int count, FT_UInt *glyph,
                         struct plugin_sentence *why)
{
    char text[128];
    hb_buffer_clear_contents(font->buffer);
    hb_buffer_add_utf32(font->buffer, codes, count, 0, count);
    hb_buffer_guess_segment_properties(font->buffer);
    hb_shape(font->shaper, font->buffer, NULL, 0);
    unsigned length = 0;
    const hb_glyph_info_t *info = hb_buffer_get_glyph_infos(font->buffer, &length);
    if (length != 1)
        return explain(why, MIMO_ERR_NOT_FOUND, "the font %s draws %s with %u glyphs, not with one",
                       font->path, spell(text, codes, count), length);
    if (info[0].codepoint == 0)
        return explain(why, MIMO_ERR_NOT_FOUND, "the font %s has no glyph for %s", font->path,
                       spell(text, codes, count));
    *glyph = info[0].codepoint;
    return MIMO_OK;
}

static mimo_status load(struct render_font *font, FT_UInt glyph, const uint32_t *codes, int count,
                        struct plugin_sentence *why)
{
    char text[128];
    FT_Error error = FT_Load_Glyph(font->face, glyph, FT_LOAD_COLOR);
    if (error)
        return explain(why, MIMO_ERR_IO,
                       "the font %s is damaged: FreeType error %d at glyph %u (%s)", font->path,
                       error, glyph, spell(text, codes, count));
    const FT_Bitmap *bitmap = &font->face->glyph->bitmap;
    if (bitmap->pixel_mode != FT_PIXEL_MODE_BGRA || bitmap->width == 0 || bitmap->rows == 0 ||
        bitmap->width > RENDER_LARGEST || bitmap->rows > RENDER_LARGEST)
        return explain(why, MIMO_ERR_UNSUPPORTED,
                       "the font %s draws %s in mode %d at %u x %u, not in colour up to %d x %d",
                       font->path, spell(text, codes, count), bitmap->pixel_mode, bitmap->width,
                       bitmap->rows, RENDER_LARGEST, RENDER_LARGEST);
    return MIMO_OK;
}

/* Premultiplied BGRA over white, centred. */
static void composite(uint8_t *canvas, const FT_Bitmap *bitmap)
{
    int left = (RENDER_LARGEST - (int)bitmap->width) / 2;
    int top = (RENDER_LARGEST - (int)bitmap->rows) / 2;
    memset(canvas, 0xff, RENDER_LARGEST * RENDER_LARGEST * 3);
    for (int y = 0; y < (int)bitmap->rows; y++) {
        const uint8_t *from = bitmap->buffer + (ptrdiff_t)y * bitmap->pitch;
        uint8_t *to = canvas + ((top + y) * RENDER_LARGEST + left) * 3;
        for (int x = 0; x < (int)bitmap->width; x++, from += 4, to += 3) {
            for (int c = 0; c < 3; c++) {
                int value = from[2 - c] + 255 - from[3];
                to[c] = (uint8_t)(value > 255 ? 255 : value);
            }
        }
    }
}

static mimo_status draw(struct render_font *font, const uint32_t *codes, int count, int size,
                        uint8_t *rgb, struct plugin_sentence *why)
{
    FT_UInt glyph = 0;
    if (size < 1 || size > RENDER_LARGEST)
        return explain(why, MIMO_ERR_ARGUMENT, "images are from 1 to %d pixels a side, not %d",
                       RENDER_LARGEST, size);
    mimo_status status = shape(font, codes, count, &glyph, why);
    if (status == MIMO_OK)
        status = load(font, glyph, codes, count, why);
    if (status != MIMO_OK)
        return status;
    composite(font->canvas, &font->face->glyph->bitmap);
    box_filter_rgb(rgb, size, font->canvas, RENDER_LARGEST);
    return MIMO_OK;
}

extern const struct render_module captioner_render_module;

__attribute__((visibility("default"))) const struct render_module captioner_render_module = {
    .version = RENDER_MODULE_VERSION,
    .open = open_font,
    .draw = draw,
    .close = close_font,
};
