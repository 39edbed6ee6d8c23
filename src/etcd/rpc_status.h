/*
 * What a gRPC status means for us: one table from status codes to LH_ERR codes. Pure; any thread.
 */
#pragma once

#include "base/errors.h"

#include <glib.h>

typedef enum {
    LH_RPC_READ,  /* asking again is harmless */
    LH_RPC_WRITE, /* it matters whether it happened */
} LhRpcKind;

/* @status is the gRPC status code (0 counts as "closed too early") of a call that was handed to gRPC.
 * @message is the peer's or gRPC's; the first 200 bytes of it are repeated. */
GError *lh_rpc_error(const char *method, LhRpcKind kind, int status, const char *message,
                     gsize message_len);
