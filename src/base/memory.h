/*
 * What a program that holds much asks of the allocator. Nothing depends on it but the resident set.
 */
#pragma once

/* At the start, before there are threads: one heap for all, because memory that a thread of its own has freed
 * at the top of its heap never goes back to the system. */
void lh_memory_init(void);
/* Gives back what is free; after much has been freed. */
void lh_memory_trim(void);
