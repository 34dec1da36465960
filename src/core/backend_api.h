/*
 * Private functions that the library of a backend (libmimo-bridge-mpi) calls in the core library.
 *
 * The core library shows them, under a symbol version that names this exact release
 * (src/mimo-bridge.map.in). So a backend library of another release is refused when it is loaded,
 * and their types may change at any time. A function that is marked here is named in the map, and
 * a backend library uses it: tests/law/exported_symbols.sh compares the three.
 */
#ifndef MIMO_CORE_BACKEND_API_H
#define MIMO_CORE_BACKEND_API_H

#include <mimo/export.h>

#define MIMO_BACKEND_API MIMO_API

#endif
