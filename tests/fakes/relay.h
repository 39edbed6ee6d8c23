/*
 * A TCP relay in front of a server on loopback, on a thread of its own: what it does goes on while the
 * test is busy or blocked. It can keep the answers of one connection from its client, and refuse the
 * connections of some clients. Functions: any one thread; they return when it is so.
 */
#pragma once

#include <glib.h>

typedef struct Relay Relay;

Relay *relay_new(guint16 server_port); /* on a free port */
void relay_free(Relay *relay);         /* accepts NULL */
guint16 relay_port(const Relay *relay);

/* From the first piece on that holds @marker, nothing that the server sends on that connection reaches
 * the client; what the client sends goes on. Of each such connection, and NULL: of none any more. */
void relay_mute(Relay *relay, const char *marker);
/* What the server has sent on muted connections. */
gsize relay_withheld(Relay *relay);
/* Pieces that held the marker. */
guint relay_seen(Relay *relay);
/* Ends the muted connections. */
void relay_cut_muted(Relay *relay);

/* Ends all connections, present and future, of clients whose first words hold @marker; "": of all.
 * NULL: of none any more. */
void relay_refuse(Relay *relay, const char *marker);
