/* Named matrices of doubles: the parameters, the gradients and the results of the reference. */
#ifndef REF_TABLE_H
#define REF_TABLE_H

#include <stdint.h>

typedef struct ref_tensor {
    char name[64];
    int64_t rows, columns; /* a vector has one column */
    double *data;          /* [rows, columns], zeroed at first */
    int decays;            /* weight decay applies to this parameter */
} ref_tensor;

typedef struct ref_table {
    ref_tensor *list;
    int count;
} ref_table;

/* `count` zeros. Ends the program where memory is short. */
double *ref_room(int64_t count);

/* Add a matrix. Its data stays at its address. A second matrix of the same name ends the
 * program. */
double *ref_add(ref_table *table, const char *name, int64_t rows, int64_t columns);
/* NULL where no matrix has that name. */
ref_tensor *ref_find(const ref_table *table, const char *name);
/* A table of the same names and shapes, with zeros or with copies of the values. */
ref_table ref_like(const ref_table *table, int with_values);
void ref_zero(ref_table *table);
void ref_free(ref_table *table);

#endif
