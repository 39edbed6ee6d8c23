/*
 * What simulated nodes write: keys and values are gathered while the loop has nothing else to do, and sent in
 * full transactions, a few in flight. Whole keys. Ends the program when etcd refuses.
 */
#pragma once

#include "bench.h"

typedef struct Answers Answers;

Answers *answers_new(void);
/* @value NULL: deletes. Takes both. */
void answers_add(Answers *answers, char *key, char *value, gint64 lease);
/* etcd has taken all of them. */
gboolean answers_taken(const Answers *answers);
/* How many it has taken. */
guint64 answers_count(const Answers *answers);
/* How many wait to be sent. */
guint answers_waiting(const Answers *answers);
void answers_free(Answers *answers); /* waits until all are taken */
