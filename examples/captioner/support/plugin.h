/*
 * The two optional modules, loaded only when they are needed: captioner-render (FreeType, HarfBuzz)
 * and captioner-pictures (cairo). The program itself links neither library and starts without them.
 *
 * A module exports one symbol, a const struct of functions that begins with its version; it links
 * nothing of the program and tells its errors by a status and a sentence in the caller's room.
 */
#ifndef CAPTIONER_PLUGIN_H
#define CAPTIONER_PLUGIN_H

#include <stddef.h>

#include <mimo/status.h>

enum { PLUGIN_SENTENCE_CAPACITY = 512 };

/* Where a module writes why it failed; always terminated. */
struct plugin_sentence {
    char text[PLUGIN_SENTENCE_CAPACITY];
};

struct plugin {
    void *handle;          /* for plugin_close */
    const void *interface; /* the exported struct */
};

/* Which module, and what its users must install. */
struct plugin_name {
    const char *file;     /* "captioner-render.so" */
    const char *symbol;   /* its exported struct */
    unsigned version;     /* the first member of that struct */
    const char *packages; /* Debian packages, for the sentence of a failure */
};

/**
 * Load a module from `folder`; NULL looks beside the running program, then in the folder that it is
 * installed to. MIMO_ERR_UNSUPPORTED with one sentence where no module is found (the program was
 * built without it), where a library that it needs is absent, or where it is of another version.
 */
mimo_status plugin_open(struct plugin *out, const struct plugin_name *name, const char *folder);

/* Let go of a module (its code stays mapped); a zeroed plugin is fine. */
void plugin_close(struct plugin *plugin);

#endif
