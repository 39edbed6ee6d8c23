/*
 * Authenticate's messages to and from bytes.
 *
 * The password is in the packed request, which gRPC frees when it has been sent, and nowhere else.
 */
#include "etcd/codec.h"
#include "etcd/etcd.pb-c.h"

#include <string.h>

LhBytes lh_codec_authenticate(const char *user, const char *password)
{
    Etcdserverpb__AuthenticateRequest m = ETCDSERVERPB__AUTHENTICATE_REQUEST__INIT;
    m.name = (char *)(guintptr)user;
    m.password = (char *)(guintptr)password;
    gsize len = etcdserverpb__authenticate_request__get_packed_size(&m);
    guint8 *data = g_malloc(MAX(len, 1));
    etcdserverpb__authenticate_request__pack(&m, data);
    return (LhBytes){.data = data, .len = len};
}

gpointer lh_codec_authenticate_reply(LhArena *arena, const guint8 *data, gsize len)
{
    Etcdserverpb__AuthenticateResponse *m = etcdserverpb__authenticate_response__unpack(NULL, len,
                                                                                        data);
    gpointer token = NULL;
    if (m != NULL && m->token[0] != '\0')
        token = (gpointer)(guintptr)lh_arena_copy(arena, m->token, strlen(m->token));
    if (m != NULL)
        etcdserverpb__authenticate_response__free_unpacked(m, NULL);
    return token;
}
