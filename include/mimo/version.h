/*
 * The version of the library: of these headers, and of the library that a program runs with.
 * docs/versions.md says what a release may change.
 */
#ifndef MIMO_VERSION_H
#define MIMO_VERSION_H

#include <mimo/export.h>

MIMO_BEGIN_DECLS

/** The version of these headers. */
#define MIMO_VERSION_MAJOR 0
#define MIMO_VERSION_MINOR 4
#define MIMO_VERSION_PATCH 0
#define MIMO_VERSION_STRING "0.4.0"

/** A number that grows with each release, for #if: MIMO_VERSION >= MIMO_VERSION_NUMBER(0, 3, 0). */
#define MIMO_VERSION_NUMBER(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define MIMO_VERSION MIMO_VERSION_NUMBER(MIMO_VERSION_MAJOR, MIMO_VERSION_MINOR, MIMO_VERSION_PATCH)

/** MIMO_VERSION of the library that runs. Local, thread-safe. */
MIMO_API int mimo_version(void);

/** MIMO_VERSION_STRING of the library that runs. Never NULL, owned by the library. Local,
 *  thread-safe. */
MIMO_API const char *mimo_version_text(void);

MIMO_END_DECLS

#endif
