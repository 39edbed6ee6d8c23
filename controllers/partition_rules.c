/*
 * Seats in an array, and two sorted arrays of seat numbers: all by id, and the open ones by what is free of
 * them. A service's answer looks at the freest partitions until there are enough of them, not at all.
 */
#include "controllers/partition_rules.h"

#include <string.h>

typedef struct {
    const char *id;       /* NULL: the seat is not taken */
    gint64 capacity;      /* -1: not known */
    gint64 used, leaving; /* see the header */
    guint users;          /* services that use it at all */
    guint last_users;     /* of them: in the last interval of their plan */
    guint dedicated, unsized;
} Seat;

struct LhPartitionRoom {
    GArray *seats;  /* Seat */
    GArray *by_id;  /* guint */
    GArray *open;   /* guint: by what is free, then by id */
    gint64 largest; /* capacity of the largest; -1: to be looked for */
};

gint64 lh_partition_share(gint64 throughput, gint64 n)
{
    return throughput / n + (throughput % n != 0);
}

static Seat *seat_at(const LhPartitionRoom *room, guint seat)
{
    return &g_array_index(room->seats, Seat, seat);
}

static gint64 free_of(const Seat *seat)
{
    return seat->capacity - seat->used - seat->leaving;
}

/* Something new may be put on it. */
static gboolean is_open(const Seat *seat)
{
    return seat->id != NULL && seat->capacity >= 0 && seat->dedicated == 0 && seat->unsized == 0;
}

/* ---- the sorted arrays ---- */

static int compare_ids(const LhPartitionRoom *room, guint a, guint b)
{
    return strcmp(seat_at(room, a)->id, seat_at(room, b)->id);
}

static int compare_free(const LhPartitionRoom *room, guint a, guint b)
{
    gint64 x = free_of(seat_at(room, a)), y = free_of(seat_at(room, b));

    return x != y ? (x < y ? -1 : 1) : compare_ids(room, a, b);
}

typedef int (*Compare)(const LhPartitionRoom *room, guint a, guint b);

/* Where @seat is or would be put. */
static guint place_of(const LhPartitionRoom *room, const GArray *sorted, Compare compare,
                      guint seat)
{
    guint low = 0, high = sorted->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;
        if (compare(room, g_array_index(sorted, guint, middle), seat) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void take_out(const LhPartitionRoom *room, GArray *sorted, Compare compare, guint seat)
{
    guint place = place_of(room, sorted, compare, seat);

    g_assert(place < sorted->len && g_array_index(sorted, guint, place) == seat);
    g_array_remove_index(sorted, place);
}

static void put_in(const LhPartitionRoom *room, GArray *sorted, Compare compare, guint seat)
{
    guint place = place_of(room, sorted, compare, seat);

    g_array_insert_val(sorted, place, seat);
}

/* What it is sorted by changes in between. */
static void close_seat(LhPartitionRoom *room, guint seat)
{
    if (is_open(seat_at(room, seat)))
        take_out(room, room->open, compare_free, seat);
}

static void reopen_seat(LhPartitionRoom *room, guint seat)
{
    if (is_open(seat_at(room, seat)))
        put_in(room, room->open, compare_free, seat);
}

/* ---- the room ---- */

LhPartitionRoom *lh_partition_room_new(void)
{
    LhPartitionRoom *room = g_new0(LhPartitionRoom, 1);

    room->seats = g_array_new(FALSE, TRUE, sizeof(Seat));
    room->by_id = g_array_new(FALSE, FALSE, sizeof(guint));
    room->open = g_array_new(FALSE, FALSE, sizeof(guint));
    room->largest = -1;
    return room;
}

void lh_partition_room_free(LhPartitionRoom *room)
{
    if (room == NULL)
        return;
    g_array_unref(room->seats);
    g_array_unref(room->by_id);
    g_array_unref(room->open);
    g_free(room);
}

LhPartitionRoom *lh_partition_room_copy(const LhPartitionRoom *room)
{
    LhPartitionRoom *copy = g_new0(LhPartitionRoom, 1);

    copy->seats = g_array_copy(room->seats);
    copy->by_id = g_array_copy(room->by_id);
    copy->open = g_array_copy(room->open);
    copy->largest = room->largest;
    return copy;
}

guint lh_partition_room_add(LhPartitionRoom *room, const char *id)
{
    guint seat = 0;

    /* A seat that was given up is taken again: they are few. */
    if (room->by_id->len == room->seats->len)
        seat = room->seats->len;
    while (seat < room->seats->len && seat_at(room, seat)->id != NULL)
        seat++;
    if (seat == room->seats->len)
        g_array_set_size(room->seats, seat + 1);
    *seat_at(room, seat) = (Seat){.id = id, .capacity = -1};
    put_in(room, room->by_id, compare_ids, seat);
    return seat;
}

void lh_partition_room_remove(LhPartitionRoom *room, guint seat)
{
    g_assert(seat_at(room, seat)->users == 0);
    close_seat(room, seat);
    take_out(room, room->by_id, compare_ids, seat);
    *seat_at(room, seat) = (Seat){.id = NULL};
    room->largest = -1;
}

void lh_partition_room_set_capacity(LhPartitionRoom *room, guint seat, gint64 capacity)
{
    if (seat_at(room, seat)->capacity == capacity)
        return;
    close_seat(room, seat);
    seat_at(room, seat)->capacity = capacity;
    reopen_seat(room, seat);
    room->largest = -1;
}

const char *lh_partition_room_id(const LhPartitionRoom *room, guint seat)
{
    return seat_at(room, seat)->id;
}

gint64 lh_partition_room_capacity(const LhPartitionRoom *room, guint seat)
{
    return seat_at(room, seat)->capacity;
}

gint64 lh_partition_room_load(const LhPartitionRoom *room, guint seat)
{
    return seat_at(room, seat)->used + seat_at(room, seat)->leaving;
}

gboolean lh_partition_room_over(const LhPartitionRoom *room, guint seat)
{
    const Seat *at = seat_at(room, seat);

    return at->capacity >= 0 && at->used > at->capacity;
}

guint lh_partition_room_users(const LhPartitionRoom *room, guint seat)
{
    return seat_at(room, seat)->last_users;
}

static void count(LhPartitionRoom *room, const LhPartitionUse *use, int sign)
{
    Seat *seat = seat_at(room, use->seat);

    close_seat(room, use->seat);
    seat->used += sign * use->used;
    seat->leaving += sign * use->leaving;
    seat->users += (guint)sign;
    seat->last_users += (guint)(use->last ? sign : 0);
    seat->dedicated += (guint)(use->dedicated ? sign : 0);
    seat->unsized += (guint)(use->unsized ? sign : 0);
    reopen_seat(room, use->seat);
}

void lh_partition_room_put(LhPartitionRoom *room, const LhPartitionUse *uses, guint n)
{
    for (guint i = 0; i < n; i++)
        count(room, &uses[i], 1);
}

void lh_partition_room_lift(LhPartitionRoom *room, const LhPartitionUse *uses, guint n)
{
    for (guint i = 0; i < n; i++)
        count(room, &uses[i], -1);
}

/* ---- what a service holds ---- */

/* What is free of it for the service that holds it; -1: it cannot stay there. */
static gint64 room_of(const LhPartitionRoom *room, const LhPartitionUse *held)
{
    const Seat *seat = seat_at(room, held->seat);

    if (seat->capacity < 0)
        return -1;
    if (held->last)
        return seat->capacity - seat->used;
    return is_open(seat) ? free_of(seat) : -1;
}

static gboolean for_itself(const LhPartitionRoom *room, const LhPartitionUse *held)
{
    const Seat *seat = seat_at(room, held->seat);

    return seat->capacity > 0 && (held->last ? seat->last_users : seat->users) == 0;
}

gboolean lh_partition_room_keeps(const LhPartitionRoom *room, const LhPartitionAsk *ask)
{
    gint64 n = 0, capacity = 0;

    for (guint i = 0; i < ask->n_held; i++) {
        const Seat *seat = seat_at(room, ask->held[i].seat);
        if (!ask->held[i].last)
            continue;
        if (ask->dedicated ? seat->capacity <= 0 || seat->last_users > 1
                           : seat->capacity < 0 || seat->used > seat->capacity)
            return FALSE;
        capacity = MIN(ask->throughput, capacity + seat->capacity);
        n++;
    }
    return n > 0 && n >= ask->min && (!ask->dedicated || capacity >= ask->throughput);
}

/* ---- deciding ---- */

typedef struct {
    guint seat;
    gint64 room;
    gboolean last;
} Held;

typedef struct {
    LhPartitionRoom *room;
    const LhPartitionAsk *ask;
    GArray *held;        /* Held that can be used, the one with the least room first, then by id */
    GHashTable *is_held; /* set of seats + 1 */
} Deciding;

static gint by_room(gconstpointer a, gconstpointer b, gpointer data)
{
    const Held *x = a, *y = b;

    if (x->room != y->room)
        return x->room < y->room ? -1 : 1;
    return compare_ids(data, x->seat, y->seat);
}

static void deciding_begin(Deciding *deciding, LhPartitionRoom *room, const LhPartitionAsk *ask)
{
    *deciding = (Deciding){
        .room = room,
        .ask = ask,
        .held = g_array_new(FALSE, FALSE, sizeof(Held)),
        .is_held = ask->n_held == 0 ? NULL : g_hash_table_new(NULL, NULL),
    };
    for (guint i = 0; i < ask->n_held; i++) {
        Held held = {ask->held[i].seat, room_of(room, &ask->held[i]), ask->held[i].last};
        if (held.room >= 0)
            g_array_append_val(deciding->held, held);
        g_hash_table_add(deciding->is_held, GUINT_TO_POINTER(held.seat + 1));
    }
    g_array_sort_with_data(deciding->held, by_room, room);
}

static void deciding_end(Deciding *deciding)
{
    g_array_unref(deciding->held);
    g_clear_pointer(&deciding->is_held, g_hash_table_unref);
}

static gboolean is_held(const Deciding *deciding, guint seat)
{
    return deciding->is_held != NULL &&
           g_hash_table_contains(deciding->is_held, GUINT_TO_POINTER(seat + 1));
}

/* The freest of all that it does not hold, before place *@at; -1 when there is none left. */
static gint64 freest_other(const Deciding *deciding, guint *at)
{
    const GArray *open = deciding->room->open;

    while (*at > 0 && is_held(deciding, g_array_index(open, guint, *at - 1)))
        (*at)--;
    if (*at == 0)
        return -1;
    return free_of(seat_at(deciding->room, g_array_index(open, guint, *at - 1)));
}

/* The smallest n for which n partitions have their share free: as the k-th freest has what it has, that is the
 * first place, from the freest on, at which there is enough for its number. 0: there is none. */
static gint64 smallest_number(const Deciding *deciding)
{
    const LhPartitionAsk *ask = deciding->ask;
    guint mine = deciding->held->len, others = deciding->room->open->len;
    gint64 most = (gint64)mine + others, least_share;

    if (most == 0)
        return 0;
    least_share = lh_partition_share(ask->throughput, most);
    for (gint64 n = 1; n <= most; n++) {
        gint64 own = mine == 0 ? -1 : g_array_index(deciding->held, Held, mine - 1).room;
        gint64 other = freest_other(deciding, &others);
        gint64 room = MAX(own, other);
        if (room < least_share)
            return 0; /* what follows has less, and no share is smaller */
        if (n >= ask->min && room >= lh_partition_share(ask->throughput, n))
            return n;
        if (own >= other)
            mine--;
        else
            others--;
    }
    return 0;
}

/* The first place in room->open at which @share is free. */
static guint first_with(const LhPartitionRoom *room, gint64 share)
{
    guint low = 0, high = room->open->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;
        if (free_of(seat_at(room, g_array_index(room->open, guint, middle))) < share)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void take_shared(const Deciding *deciding, gint64 n, gint64 share, GArray *seats)
{
    const GArray *open = deciding->room->open;

    /* What was decided last comes before what is to be left: else the two would be exchanged in turns. */
    for (int last = 1; last >= 0; last--) {
        for (guint i = 0; i < deciding->held->len && seats->len < n; i++) {
            const Held *held = &g_array_index(deciding->held, Held, i);
            if (held->last == last && held->room >= share)
                g_array_append_val(seats, held->seat);
        }
    }
    for (guint at = first_with(deciding->room, share); seats->len < n; at++) {
        guint seat = g_array_index(open, guint, at);
        if (!is_held(deciding, seat))
            g_array_append_val(seats, seat);
    }
}

static gint64 count_with(const Deciding *deciding, gint64 share)
{
    const GArray *open = deciding->room->open;
    gint64 n = 0;

    for (guint i = 0; i < deciding->held->len; i++)
        n += g_array_index(deciding->held, Held, i).room >= share;
    n += open->len - first_with(deciding->room, share);
    for (guint i = 0; i < deciding->ask->n_held; i++) {
        const Seat *seat = seat_at(deciding->room, deciding->ask->held[i].seat);
        n -= is_open(seat) && free_of(seat) >= share; /* not counted twice */
    }
    return n;
}

static gint64 largest_capacity(LhPartitionRoom *room)
{
    if (room->largest < 0) {
        room->largest = 0;
        for (guint i = 0; i < room->by_id->len; i++)
            room->largest = MAX(room->largest,
                                seat_at(room, g_array_index(room->by_id, guint, i))->capacity);
    }
    return room->largest;
}

static LhPartitionAnswer decide_shared(const Deciding *deciding, GArray *seats)
{
    const LhPartitionAsk *ask = deciding->ask;
    gint64 n = smallest_number(deciding), largest = largest_capacity(deciding->room);
    LhPartitionAnswer answer = {.enough = n > 0};

    if (n > 0) {
        answer.share = lh_partition_share(ask->throughput, n);
        g_array_set_size(seats, 0);
        take_shared(deciding, n, answer.share, seats);
        return answer;
    }
    answer.needed = MAX(1, ask->min);
    if (largest > 0)
        answer.needed = MAX(answer.needed, lh_partition_share(ask->throughput, largest));
    answer.share = lh_partition_share(ask->throughput, answer.needed);
    answer.found = count_with(deciding, answer.share);
    return answer;
}

static LhPartitionAnswer decide_dedicated(const Deciding *deciding, GArray *seats)
{
    const LhPartitionAsk *ask = deciding->ask;
    LhPartitionRoom *room = deciding->room;
    g_autoptr(GArray) got = g_array_new(FALSE, FALSE, sizeof(guint));
    gint64 capacity = 0, largest = largest_capacity(room), missing;
    LhPartitionAnswer answer = {.enough = FALSE};

    for (int pass = 0; pass < 3 && !answer.enough; pass++) {
        gboolean own = pass < 2;
        for (guint i = 0; i < (own ? ask->n_held : room->by_id->len) && !answer.enough; i++) {
            guint seat = own ? ask->held[i].seat : g_array_index(room->by_id, guint, i);
            const Seat *at = seat_at(room, seat);
            if (own ? ask->held[i].last != (pass == 0) || !for_itself(room, &ask->held[i])
                    : is_held(deciding, seat) || at->users != 0 || at->capacity <= 0)
                continue;
            g_array_append_val(got, seat);
            capacity = MIN(ask->throughput, capacity + at->capacity);
            answer.enough = capacity >= ask->throughput && got->len >= MAX(1, ask->min);
        }
    }
    if (answer.enough) {
        g_array_set_size(seats, 0);
        g_array_append_vals(seats, got->data, got->len);
        answer.share = lh_partition_share(ask->throughput, got->len);
        return answer;
    }
    missing = ask->throughput - capacity;
    answer.found = got->len;
    answer.needed = MAX(MAX(1, ask->min),
                        answer.found + (largest > 0 ? lh_partition_share(missing, largest) : 0));
    answer.needed = MAX(answer.needed, answer.found + 1);
    answer.share = lh_partition_share(ask->throughput, answer.needed);
    return answer;
}

static gint by_id(gconstpointer a, gconstpointer b, gpointer data)
{
    return compare_ids(data, *(const guint *)a, *(const guint *)b);
}

LhPartitionAnswer lh_partition_room_decide(LhPartitionRoom *room, const LhPartitionAsk *ask,
                                           GArray *seats)
{
    Deciding deciding;
    LhPartitionAnswer answer;

    deciding_begin(&deciding, room, ask);
    answer = ask->dedicated ? decide_dedicated(&deciding, seats) : decide_shared(&deciding, seats);
    if (answer.enough)
        g_array_sort_with_data(seats, by_id, room);
    deciding_end(&deciding);
    return answer;
}
