/*
 * api/openapi.yaml as it was when the program was built; src/http/embed.py makes the array of it.
 */
#pragma once

#include <glib.h>

extern const char lh_openapi[]; /* NUL-terminated */
extern const gsize lh_openapi_len;

/* The document as a page for people: every route with its method, role, parameters and answers. Free with
 * g_free; NULL: @text is not YAML, or describes no paths. */
char *lh_openapi_page(const char *text, gsize len);
