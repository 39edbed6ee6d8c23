/*
 * The file that a fetch writes: new, digested in order whatever order its pieces come in, synced,
 * and gone again unless all went well.
 *
 * One thread. Errors name the path: LH_ERR_NO_SPACE for a full disk, LH_ERR_IO and LH_ERR_FORBIDDEN
 * else.
 */
#pragma once

#include <glib.h>

typedef struct LhLocalFile LhLocalFile;

/* Creates @path, which must not exist. */
LhLocalFile *lh_local_file_new(const char *path, GError **error);
gboolean lh_local_file_write(LhLocalFile *file, gint64 offset, const guint8 *data, gsize n,
                             GError **error);

/* So many bytes from the beginning on are in the digest. */
gint64 lh_local_file_digested(const LhLocalFile *file);
/* The next bytes of the digest, when they are at hand. */
void lh_local_file_digest(LhLocalFile *file, const guint8 *data, gsize n);
/* Reads on from where the digest is, up to @end, which has been written. */
gboolean lh_local_file_digest_to(LhLocalFile *file, gint64 end, GError **error);

/* Syncs it to the disk; the digest as 64 hex digits, g_free. */
char *lh_local_file_finish(LhLocalFile *file, GError **error);
/* Removes the file unless lh_local_file_finish went well. Accepts NULL. */
void lh_local_file_free(LhLocalFile *file);

/* The digest of what @fd (at its beginning) holds; g_free. NULL: an error, or *@stop (atomic) became
 * other than 0 meanwhile, which is LH_ERR_CANCELLED. @path is for the error. */
char *lh_local_file_digest_of(int fd, const char *path, const gint *stop, GError **error);

/* LH_ERR_NO_SPACE and so on, from an errno. "<path>: <doing>: <why>". */
void lh_store_set_errno(GError **error, int saved, const char *uri, const char *name,
                        const char *doing);

G_DEFINE_AUTOPTR_CLEANUP_FUNC(LhLocalFile, lh_local_file_free)
