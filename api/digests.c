/*
 * SHA-256 digests of files, packed: name, NUL, 32 bytes; and so on; NUL.
 *
 * A million snapshots are kept in memory, and their digests are seldom looked at: as hexadecimal
 * text in a map they would be most of an object.
 */
#include "api/codec.h"

#include <string.h>

const guint8 lh_empty_digests[] = {0};

gboolean lh_digest_pack(const char *hex, guint8 *out)
{
    if (strnlen(hex, 2 * LH_DIGEST_BYTES + 1) != 2 * LH_DIGEST_BYTES)
        return FALSE;
    for (guint i = 0; i < LH_DIGEST_BYTES; i++) {
        int high = g_ascii_xdigit_value(hex[2 * i]);
        int low = g_ascii_xdigit_value(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return FALSE;
        out[i] = (guint8)(high * 16 + low);
    }
    return TRUE;
}

gboolean lh_digests_next(const guint8 **at, const char **file, char hex[65])
{
    static const char digits[] = "0123456789abcdef";
    if (*at == NULL || **at == 0)
        return FALSE;
    const guint8 *digest = *at + strlen((const char *)*at) + 1;
    *file = (const char *)*at;
    for (guint i = 0; i < LH_DIGEST_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * LH_DIGEST_BYTES] = '\0';
    *at = digest + LH_DIGEST_BYTES;
    return TRUE;
}

gsize lh_digests_length(const guint8 *digests)
{
    const guint8 *at = digests;
    while (*at != 0)
        at += strlen((const char *)at) + 1 + LH_DIGEST_BYTES;
    return (gsize)(at - digests);
}
