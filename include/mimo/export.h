/* Symbol visibility and C++ linkage for every public header. */
#ifndef MIMO_EXPORT_H
#define MIMO_EXPORT_H

#if defined(__GNUC__)
#define MIMO_API __attribute__((visibility("default")))
#define MIMO_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define MIMO_DEPRECATED(successor) __attribute__((deprecated(successor)))
#else
#define MIMO_API
#define MIMO_PRINTF(text, first)
#define MIMO_DEPRECATED(successor)
#endif

#ifdef __cplusplus
#define MIMO_BEGIN_DECLS extern "C" {
#define MIMO_END_DECLS }
#else
#define MIMO_BEGIN_DECLS
#define MIMO_END_DECLS
#endif

#endif
