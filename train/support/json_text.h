/* JSON that cJSON would read otherwise than Python does. */
#ifndef TRAIN_JSON_TEXT_H
#define TRAIN_JSON_TEXT_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <string.h>

#include "train/support/train_support.h"

/* Whether a string of the JSON text[0 .. length) has the character 0, which JSON writes as an
 * escape. cJSON would end the string there, and so read another name than Python does. */
static inline bool json_has_nul(const char *text, size_t length)
{
    static const char nul[] = "\\u0000";
    size_t bytes = sizeof nul - 1;
    for (size_t at = 0; at < length; at++) {
        if (text[at] != '\\')
            continue;
        if (length - at >= bytes && memcmp(text + at, nul, bytes) == 0)
            return true;
        at++; /* what is escaped may be a backslash */
    }
    return false;
}

/* The value of an object's key, NULL where there is none. Of two, Python takes the last and cJSON
 * the first. */
static inline mimo_status json_member(const cJSON **out, const cJSON *object, const char *key)
{
    *out = NULL;
    if (!cJSON_IsObject(object)) /* what an array has bears no keys */
        return MIMO_OK;
    for (const cJSON *item = object->child; item; item = item->next) {
        if (strcmp(item->string, key) != 0)
            continue;
        CHECK(!*out, MIMO_ERR_IO, "\"%s\" is there twice", key);
        *out = item;
    }
    return MIMO_OK;
}

#endif
