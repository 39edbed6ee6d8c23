/*
 * The results: one line for each figure, printed as an aligned table or written as JSON.
 *
 * An aim is what the figure should reach; a reference is what an idiomatic controller on etcd's own Go
 * client with the same contract reached, as text. Strings are copied.
 */
#pragma once

#include <glib.h>

typedef enum { AIM_NONE, AIM_AT_LEAST, AIM_AT_MOST } AimType;

typedef struct {
    AimType type;
    double value;
} Aim;

#define NO_AIM         ((Aim){AIM_NONE, 0})
#define AT_LEAST(goal) ((Aim){AIM_AT_LEAST, (goal)})
#define AT_MOST(goal)  ((Aim){AIM_AT_MOST, (goal)})

typedef struct Table Table;

Table *table_new(void);
void table_free(Table *table);
/* @reference NULL: none. */
void table_add(Table *table, const char *row, double value, const char *unit, Aim aim,
               const char *reference, const char *what, ...) G_GNUC_PRINTF(7, 8);
/* A row that could not be measured, and why. */
void table_skip(Table *table, const char *row, const char *why, ...) G_GNUC_PRINTF(3, 4);
/* By row; lines of one row stay in the order in which they were added. */
void table_sort(Table *table);
void table_print(const Table *table);
/* An array of {row, what, value, unit, reference[, atLeast or atMost, met]} or {row, skipped}. */
gboolean table_write_json(const Table *table, const char *path, GError **error);
