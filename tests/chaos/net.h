/*
 * The network between the processes of a chaos world: TCP links on one thread of their own, so that what
 * they do goes on while the test is busy. Each link listens on a port and passes on to a server's port,
 * until it is told to do otherwise:
 *
 *   delay     what is sent in a direction comes so many milliseconds later, in order
 *   hold      nothing comes in a direction; the sender's data wait, and all come when it is over
 *   drop      nothing comes in a direction, and what was sent is lost: those connections end with it
 *   refuse    all connections end, and new ones
 *   answer    each request is answered with this text, and the connection closed
 *   truncate  each connection ends after so many more bytes of the server
 *
 * Functions: any one thread; they return when it is so.
 */
#pragma once

#include <glib.h>

typedef struct Net Net;
typedef struct Link Link;

/* Directions, as bits. */
#define LINK_TO_SERVER 1U
#define LINK_TO_CLIENT 2U
#define LINK_BOTH      3U

Net *net_new(void);
void net_free(Net *net); /* and all its links; accepts NULL */

/* From a free port of @address to @server_port of 127.0.0.1. The net owns it. */
Link *net_link(Net *net, const char *address, guint16 server_port);
guint16 link_port(const Link *link);
/* To this address and port from now on; what is connected stays. @address lives as long as the link. */
void link_to(Link *link, const char *address, guint16 port);

void link_delay(Link *link, guint directions, gint64 ms);
void link_hold(Link *link, guint directions);
void link_drop(Link *link, guint directions);
void link_refuse(Link *link);
void link_answer(Link *link, const char *text);
void link_truncate(Link *link, gsize bytes);
/* Ends all of it. */
void link_heal(Link *link);

/* How often something was delayed, held, dropped, refused, answered or truncated since the last heal:
 * pieces and connections. */
guint64 link_touched(Link *link);
