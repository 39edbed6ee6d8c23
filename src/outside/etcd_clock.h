/*
 * What time etcd says it is: the Date of its answer to GET /version, at whole seconds. Loop thread; the
 * waiting is done on a thread of its own.
 */
#pragma once

#include "outside/sweeper.h"

typedef struct LhEtcdClock LhEtcdClock;

/* @endpoint gives "http://host:port" at each question. The files (NULL: none) are etcd's own; copied. */
LhEtcdClock *lh_etcd_clock_new(char *(*endpoint)(gpointer data), gpointer data, const char *cacert,
                               const char *cert, const char *key);
void lh_etcd_clock_free(LhEtcdClock *clock); /* accepts NULL */
LhClockSource lh_etcd_clock_source(LhEtcdClock *clock);
