/* Named matrices of doubles: the parameters, the gradients and the results of the reference. */
#ifndef REF_TABLE_H
#define REF_TABLE_H

#include <stdint.h>

typedef struct ref_tensor {
    char name[64];
    int64_t rows, columns; /* a vector has one column */
    double *data;          /* [rows, columns], zeros at first */
    int decays;            /* a parameter that weight decay applies to */
} ref_tensor;

typedef struct ref_table {
    ref_tensor *list;
    int count;
} ref_table;

/* Zeros; ends the program where there is no memory. */
double *ref_room(int64_t count);

/* Add a matrix; its data stays where it is. A name twice ends the program. */
double *ref_add(ref_table *table, const char *name, int64_t rows, int64_t columns);
/* NULL where there is none. */
ref_tensor *ref_find(const ref_table *table, const char *name);
/* The same names and shapes; zeros, or the values too. */
ref_table ref_like(const ref_table *table, int with_values);
void ref_zero(ref_table *table);
void ref_free(ref_table *table);

#endif
