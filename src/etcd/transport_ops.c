/*
 * Bytes and operations of gRPC, and when a lane leaves its endpoint.
 */
#include "etcd/transport_private.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>

void lh_grpc_start_batch(grpc_call *call, const grpc_op *ops, gsize n, LhOp *op)
{
    g_atomic_int_set(&op->begun, TRUE);
    grpc_call_error misuse = grpc_call_start_batch(call, ops, n, op, NULL);
    g_assert(misuse == GRPC_CALL_OK);
}

grpc_byte_buffer *lh_grpc_buffer(LhBytes bytes)
{
    grpc_slice slice = grpc_slice_new(bytes.data, bytes.len, g_free);
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}

gpointer lh_grpc_decode(const LhRpcMethod *method, LhArena *arena, grpc_byte_buffer *buffer)
{
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, buffer))
        return NULL;
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    gpointer reply = method->decode(arena, GRPC_SLICE_START_PTR(all), GRPC_SLICE_LENGTH(all));
    grpc_slice_unref(all);
    return reply;
}

grpc_op lh_grpc_send_metadata(grpc_metadata *metadata, gsize n)
{
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    op.data.send_initial_metadata.metadata = metadata;
    op.data.send_initial_metadata.count = n;
    return op;
}

grpc_op lh_grpc_send_message(grpc_byte_buffer *message)
{
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = message;
    return op;
}

grpc_op lh_grpc_receive_metadata(grpc_metadata_array *metadata)
{
    grpc_op op = {.op = GRPC_OP_RECV_INITIAL_METADATA};
    op.data.recv_initial_metadata.recv_initial_metadata = metadata;
    return op;
}

grpc_op lh_grpc_receive_message(grpc_byte_buffer **message)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = message;
    return op;
}

grpc_op lh_grpc_receive_status(grpc_metadata_array *metadata, grpc_status_code *code,
                               grpc_slice *details)
{
    grpc_op op = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    op.data.recv_status_on_client.trailing_metadata = metadata;
    op.data.recv_status_on_client.status = code;
    op.data.recv_status_on_client.status_details = details;
    return op;
}

GError *lh_grpc_error(const LhRpcMethod *method, grpc_status_code code, grpc_slice details)
{
    return lh_rpc_error(method->name, method->kind, (int)code,
                        (const char *)GRPC_SLICE_START_PTR(details), GRPC_SLICE_LENGTH(details));
}

LhLane *lh_grpc_lane(const LhRpc *rpc, guint method)
{
    return lh_channels_lane(rpc->channels, rpc->methods[method].lease);
}

grpc_call *lh_grpc_call(LhRpc *rpc, guint method, guint endpoint, gpr_timespec deadline)
{
    LhLane *lane = lh_grpc_lane(rpc, method);
    const LhChannel *channel = lh_channels_get(rpc->channels, lane, endpoint);
    return grpc_channel_create_registered_call(channel->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                               lane->queue, channel->registered[method], deadline,
                                               NULL);
}

grpc_metadata lh_grpc_token_metadata(grpc_slice token)
{
    return (grpc_metadata){.key = grpc_slice_from_static_string("token"), .value = token};
}

grpc_slice lh_grpc_token(const LhRpc *rpc, guint method)
{
    return rpc->token != NULL && !rpc->methods[method].anonymous
               ? grpc_slice_from_copied_string(rpc->token)
               : grpc_empty_slice();
}

/* --- which endpoint --- */

/* What the lane has under way on the endpoint that it leaves ends as if that had gone away. */
void lh_grpc_move(LhRpc *rpc, LhLane *lane, const char *why)
{
    guint from = lane->current;
    if (lh_channels_n(rpc->channels) == 1 || rpc->closing)
        return;
    lh_channels_move(rpc->channels, lane, why);
    for (GList *link = rpc->calls.head; link != NULL; link = link->next) {
        const LhRpcCall *call = link->data;
        if (call->call != NULL && call->endpoint == from && lh_grpc_lane(rpc, call->method) == lane)
            grpc_call_cancel_with_status(call->call, GRPC_STATUS_UNAVAILABLE,
                                         "given up for another endpoint", NULL);
    }
    for (GList *link = rpc->streams.head; link != NULL; link = link->next) {
        const LhRpcStream *stream = link->data;
        if (!stream->pinned && stream->endpoint == from &&
            lh_grpc_lane(rpc, stream->method) == lane)
            grpc_call_cancel_with_status(stream->call, GRPC_STATUS_UNAVAILABLE,
                                         "given up for another endpoint", NULL);
    }
}

void lh_grpc_heard(LhRpc *rpc, guint method, guint endpoint)
{
    if (rpc->closing) /* the channels are gone */
        return;
    LhChannel *channel = lh_channels_get(rpc->channels, lh_grpc_lane(rpc, method), endpoint);
    channel->heard_us = g_get_monotonic_time();
    if (!rpc->methods[method].alone)
        channel->agreed_us = channel->heard_us;
}

/* What the end of a call or stream that was sent at @sent_us says of its endpoint. A deadline alone says
 * nothing (a page of 100 MB takes its time) unless there was no answer to anything else either; answers
 * that a member gives without a leader do not count for what takes one. @moves: the lane's when it was
 * sent: what a move ended, or what ended before, is no reason for another. */
void lh_grpc_judge(LhRpc *rpc, guint method, guint endpoint, guint moves, grpc_status_code code,
                   gint64 sent_us)
{
    LhLane *lane = lh_grpc_lane(rpc, method);
    const LhChannel *channel = lh_channels_get(rpc->channels, lane, endpoint);
    if (code == GRPC_STATUS_OK)
        lh_grpc_heard(rpc, method, endpoint);
    if (moves != lane->moves || endpoint != lane->current)
        return;
    gint64 heard_us = rpc->methods[method].alone ? channel->heard_us : channel->agreed_us;
    if (code == GRPC_STATUS_UNAVAILABLE)
        lh_grpc_move(rpc, lane, "unavailable");
    else if (code == GRPC_STATUS_DEADLINE_EXCEEDED && heard_us < sent_us)
        lh_grpc_move(rpc, lane, "no answer before a deadline");
}

grpc_connectivity_state lh_grpc_connectivity(LhRpc *rpc, LhLane *lane)
{
    return grpc_channel_check_connectivity_state(
        lh_channels_get(rpc->channels, lane, lane->current)->channel, TRUE);
}
