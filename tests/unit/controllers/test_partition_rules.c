/*
 * Which partitions a service gets: examples by hand, then random small rooms against a slow and obvious
 * reference, which follows the words of the header one n after the other.
 */
#include "controllers/partition_rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MOST 12

/* ---- examples ---- */

typedef struct {
    LhPartitionRoom *room;
    GArray *seats;
} Lab;

static Lab lab_new(guint n, const char *const *ids, const gint64 *capacities)
{
    Lab lab = {lh_partition_room_new(), g_array_new(FALSE, FALSE, sizeof(guint))};

    for (guint i = 0; i < n; i++)
        lh_partition_room_set_capacity(lab.room, lh_partition_room_add(lab.room, ids[i]),
                                       capacities[i]);
    return lab;
}

static void lab_clear(Lab *lab)
{
    lh_partition_room_free(lab->room);
    g_array_unref(lab->seats);
}

/* "a b c" of the answer. */
static char *names(const LhPartitionRoom *room, const GArray *seats)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < seats->len; i++)
        g_string_append_printf(text, "%s%s", i == 0 ? "" : " ",
                               lh_partition_room_id(room, g_array_index(seats, guint, i)));
    return g_string_free(text, FALSE);
}

static void assert_gets(Lab *lab, const LhPartitionAsk *ask, const char *expected)
{
    LhPartitionAnswer answer = lh_partition_room_decide(lab->room, ask, lab->seats);
    g_autofree char *got = names(lab->room, lab->seats);

    assert_true(answer.enough);
    assert_string_equal(got, expected);
}

static void assert_misses(Lab *lab, const LhPartitionAsk *ask, gint64 needed, gint64 found)
{
    LhPartitionAnswer answer = lh_partition_room_decide(lab->room, ask, lab->seats);

    assert_false(answer.enough);
    assert_int_equal(answer.needed, needed);
    assert_int_equal(answer.found, found);
}

static void test_shared_takes_the_fullest_that_fit(void **state)
{
    static const char *const ids[] = {"p1", "p2", "p3", "p4"};
    static const gint64 capacities[] = {10, 10, 10, 10};
    Lab lab = lab_new(4, ids, capacities);
    LhPartitionUse use[] = {{.seat = 2, .last = TRUE, .used = 6},
                            {.seat = 1, .last = TRUE, .used = 3},
                            {.seat = 0, .last = TRUE, .used = 9}};

    (void)state;
    lh_partition_room_put(lab.room, use, 3);
    /* 8 over 2 is 4 each: p3 has 4 free, p2 has 7, p4 10. */
    assert_gets(&lab, &(LhPartitionAsk){.throughput = 8, .min = 2}, "p2 p3");
    /* One is enough, but two are wanted. */
    assert_gets(&lab, &(LhPartitionAsk){.throughput = 1, .min = 2}, "p1 p3");
    /* 9 over 2 is 5 each, rounded up: p3 is out. */
    assert_gets(&lab, &(LhPartitionAsk){.throughput = 9, .min = 2}, "p2 p4");
    /* 20: 10 each needs two empty ones; 7 each has two; 5 each has two; 4 of at least 5 do not exist. */
    assert_misses(&lab, &(LhPartitionAsk){.throughput = 22, .min = 2}, 3, 1);
    lab_clear(&lab);
}

static void test_shared_keeps_what_it_holds(void **state)
{
    static const char *const ids[] = {"p1", "p2", "p3", "p4"};
    static const gint64 capacities[] = {10, 10, 10, 10};
    Lab lab = lab_new(4, ids, capacities);
    LhPartitionUse held[] = {{.seat = 2, .last = TRUE, .used = 5},
                             {.seat = 3, .last = TRUE, .used = 5}};

    (void)state;
    assert_gets(&lab, &(LhPartitionAsk){.throughput = 25, .min = 2, .held = held, .n_held = 2},
                "p1 p3 p4");
    assert_gets(&lab, &(LhPartitionAsk){.throughput = 9, .min = 1, .held = held, .n_held = 2},
                "p3");
    lab_clear(&lab);
}

static void test_leaving_is_not_free(void **state)
{
    static const char *const ids[] = {"p1"};
    static const gint64 capacities[] = {10};
    Lab lab = lab_new(1, ids, capacities);
    LhPartitionUse leaving = {.seat = 0, .leaving = 6};
    LhPartitionUse held = {.seat = 0, .last = TRUE, .used = 5};
    LhPartitionAsk ask = {.throughput = 5, .min = 1, .held = &held, .n_held = 1};

    (void)state;
    lh_partition_room_put(lab.room, &leaving, 1);
    assert_misses(&lab, &(LhPartitionAsk){.throughput = 5, .min = 1}, 1, 0);
    /* But who is there need not go because of somebody who goes. */
    assert_gets(&lab, &ask, "p1");
    lh_partition_room_put(lab.room, &held, 1);
    assert_true(lh_partition_room_keeps(lab.room, &ask));
    assert_int_equal(lh_partition_room_load(lab.room, 0), 11);
    lab_clear(&lab);
}

static void test_dedicated(void **state)
{
    static const char *const ids[] = {"p1", "p2", "p3", "p4", "p5"};
    static const gint64 capacities[] = {10, 10, 20, 10, 0};
    Lab lab = lab_new(5, ids, capacities);
    LhPartitionUse other = {.seat = 0, .last = TRUE, .used = 1};
    LhPartitionUse held[] = {{.seat = 0, .last = TRUE, .used = 5, .dedicated = TRUE},
                             {.seat = 3, .last = TRUE, .used = 5, .dedicated = TRUE}};
    LhPartitionAsk ask = {.throughput = 10, .min = 2, .dedicated = TRUE, .held = held, .n_held = 2};

    (void)state;
    lh_partition_room_put(lab.room, &other, 1);
    lh_partition_room_put(lab.room, held, 2);
    assert_false(lh_partition_room_keeps(lab.room, &ask)); /* p1 is shared with another */
    lh_partition_room_lift(lab.room, held, 2);
    assert_gets(&lab, &ask, "p2 p4");
    ask.throughput = 40;
    assert_gets(&lab, &ask, "p2 p3 p4");
    ask.throughput = 41; /* 40 are there, one more of 20 would do */
    assert_misses(&lab, &ask, 4, 3);
    ask.throughput = 1, ask.min = 4;
    assert_misses(&lab, &ask, 4, 3);
    /* Nobody is put on what somebody has for himself. */
    lh_partition_room_put(lab.room, held + 1, 1);
    assert_gets(&lab, &(LhPartitionAsk){.throughput = 20, .min = 2}, "p2 p3");
    assert_misses(&lab, &(LhPartitionAsk){.throughput = 1, .min = 5}, 5, 3);
    lab_clear(&lab);
}

static void test_what_is_not_known_is_not_used(void **state)
{
    static const char *const ids[] = {"p1", "p2"};
    static const gint64 capacities[] = {10, 10};
    Lab lab = lab_new(2, ids, capacities);
    LhPartitionUse unsized = {.seat = 0, .last = TRUE, .unsized = TRUE};

    (void)state;
    lh_partition_room_put(lab.room, &unsized, 1);
    lh_partition_room_set_capacity(lab.room, 1, -1);
    assert_misses(&lab, &(LhPartitionAsk){.throughput = 5, .min = 1}, 1, 0);
    lh_partition_room_set_capacity(lab.room, 1, 5);
    assert_gets(&lab, &(LhPartitionAsk){.throughput = 5, .min = 1}, "p2");
    lh_partition_room_lift(lab.room, &unsized, 1);
    lh_partition_room_remove(lab.room, 0);
    assert_misses(&lab, &(LhPartitionAsk){.throughput = 6, .min = 1}, 2, 1);
    assert_int_equal(lh_partition_room_add(lab.room, "p0"), 0);
    lh_partition_room_set_capacity(lab.room, 0, 9);
    assert_gets(&lab, &(LhPartitionAsk){.throughput = 6, .min = 1}, "p0");
    lab_clear(&lab);
}

/* ---- the slow reference ---- */

typedef struct {
    char id[8];
    gint64 capacity, used, leaving;
    guint users, last_users, dedicated, unsized;
} SlowSeat;

typedef struct {
    SlowSeat seats[MOST];
    guint n, order[MOST]; /* order: of adding; numbers of the seats in the room under test */
    LhPartitionUse held[MOST];
    guint n_held; /* sorted by id; seat is the slow one's */
    gint64 throughput, min;
    gboolean dedicated;
} Case;

static const LhPartitionUse *slow_held(const Case *c, guint seat)
{
    for (guint i = 0; i < c->n_held; i++)
        if (c->held[i].seat == seat)
            return &c->held[i];
    return NULL;
}

/* What the service could put on it; -1: it may not. */
static gint64 slow_room(const Case *c, guint seat)
{
    const SlowSeat *s = &c->seats[seat];
    const LhPartitionUse *held = slow_held(c, seat);

    if (s->capacity < 0)
        return -1;
    if (held != NULL && held->last)
        return s->capacity - s->used;
    return s->dedicated > 0 || s->unsized > 0 ? -1 : s->capacity - s->used - s->leaving;
}

/* In the last interval of its plan, in an earlier one, in none. */
static int slow_rank(const Case *c, guint seat)
{
    const LhPartitionUse *held = slow_held(c, seat);

    return held == NULL ? 0 : held->last ? 2 : 1;
}

/* TRUE: seat @a is preferred to @b. */
static gboolean slow_before(const Case *c, guint a, guint b)
{
    if (slow_rank(c, a) != slow_rank(c, b))
        return slow_rank(c, a) > slow_rank(c, b);
    if (slow_room(c, a) != slow_room(c, b))
        return slow_room(c, a) < slow_room(c, b);
    return strcmp(c->seats[a].id, c->seats[b].id) < 0;
}

static gboolean slow_shared(const Case *c, gboolean *taken)
{
    for (gint64 n = MAX(1, c->min); n <= c->n; n++) {
        gint64 share = (c->throughput + n - 1) / n;
        guint got = 0;
        memset(taken, 0, MOST * sizeof *taken);
        while (got < n) {
            int best = -1;
            for (guint i = 0; i < c->n; i++)
                if (!taken[i] && slow_room(c, i) >= share &&
                    (best < 0 || slow_before(c, i, (guint)best)))
                    best = (int)i;
            if (best < 0)
                break;
            taken[best] = TRUE;
            got++;
        }
        if (got == n)
            return TRUE;
    }
    return FALSE;
}

static gboolean slow_dedicated(const Case *c, gboolean *taken)
{
    gint64 capacity = 0, got = 0;

    memset(taken, 0, MOST * sizeof *taken);
    for (int rank = 2; rank >= 0; rank--) {
        for (;;) {
            int best = -1;
            for (guint i = 0; i < c->n; i++) {
                const LhPartitionUse *held = slow_held(c, i);
                guint users = held != NULL && held->last ? c->seats[i].last_users
                                                         : c->seats[i].users;
                if (slow_rank(c, i) == rank && !taken[i] && users == 0 &&
                    c->seats[i].capacity > 0 &&
                    (best < 0 || strcmp(c->seats[i].id, c->seats[best].id) < 0))
                    best = (int)i;
            }
            if (got >= MAX(1, c->min) && capacity >= c->throughput)
                return TRUE;
            if (best < 0)
                break;
            taken[best] = TRUE;
            capacity += c->seats[best].capacity;
            got++;
        }
    }
    return FALSE;
}

/* ---- random cases ---- */

static void random_case(GRand *rand, Case *c)
{
    memset(c, 0, sizeof *c);
    c->n = (guint)g_rand_int_range(rand, 0, MOST + 1);
    for (guint i = 0; i < c->n; i++) {
        SlowSeat *seat = &c->seats[i];
        g_snprintf(seat->id, sizeof seat->id, "p%u", i * 7 % 30);
        seat->capacity = g_rand_int_range(rand, -1, 16);
    }
    c->throughput = g_rand_int_range(rand, 0, 60);
    c->min = g_rand_int_range(rand, 1, 5);
    c->dedicated = g_rand_int_range(rand, 0, 3) == 0;
}

/* A service on some of the partitions. */
static guint random_uses(GRand *rand, const Case *c, LhPartitionUse *uses)
{
    gboolean dedicated = g_rand_int_range(rand, 0, 4) == 0;
    gboolean unsized = g_rand_int_range(rand, 0, 8) == 0;
    guint n = 0;

    for (guint i = 0; i < c->n; i++) {
        if (g_rand_int_range(rand, 0, 4) != 0)
            continue;
        uses[n] = (LhPartitionUse){
            .seat = i,
            .last = g_rand_boolean(rand),
            .dedicated = dedicated,
            .unsized = unsized,
        };
        uses[n].used = unsized || !uses[n].last ? 0 : g_rand_int_range(rand, 0, 8);
        uses[n].leaving = unsized || g_rand_boolean(rand) ? 0 : g_rand_int_range(rand, 0, 5);
        n++;
    }
    return n;
}

static gint held_by_id(gconstpointer a, gconstpointer b, gpointer data)
{
    const Case *c = data;

    return strcmp(c->seats[((const LhPartitionUse *)a)->seat].id,
                  c->seats[((const LhPartitionUse *)b)->seat].id);
}

static void book_slow(Case *c, const LhPartitionUse *uses, guint n)
{
    for (guint i = 0; i < n; i++) {
        SlowSeat *seat = &c->seats[uses[i].seat];
        seat->used += uses[i].used;
        seat->leaving += uses[i].leaving;
        seat->users++;
        seat->last_users += uses[i].last;
        seat->dedicated += uses[i].dedicated;
        seat->unsized += uses[i].unsized;
    }
}

/* The uses with the numbers that the seats have in the room. */
static void renumber(const Case *c, const LhPartitionUse *uses, guint n, LhPartitionUse *out)
{
    for (guint i = 0; i < n; i++) {
        out[i] = uses[i];
        out[i].seat = c->order[uses[i].seat];
    }
}

static LhPartitionRoom *room_of_case(GRand *rand, Case *c)
{
    LhPartitionRoom *room = lh_partition_room_new();
    guint shuffled[MOST];

    for (guint i = 0; i < c->n; i++) {
        guint j = (guint)g_rand_int_range(rand, 0, (gint32)i + 1);
        shuffled[i] = shuffled[j];
        shuffled[j] = i;
    }
    for (guint i = 0; i < c->n; i++) {
        guint seat = shuffled[i];
        c->order[seat] = lh_partition_room_add(room, c->seats[seat].id);
        lh_partition_room_set_capacity(room, c->order[seat], c->seats[seat].capacity);
    }
    return room;
}

static void assert_within_capacity(const Case *c, const gboolean *taken, gint64 share)
{
    for (guint i = 0; i < c->n; i++)
        if (taken[i] && c->seats[i].used + share > c->seats[i].capacity)
            fail_msg("%s holds %d of %d", c->seats[i].id, (int)(c->seats[i].used + share),
                     (int)c->seats[i].capacity);
}

/* Those it holds and could go on using are not exchanged for others. */
static void assert_moves_little(const Case *c, const gboolean *taken, gint64 share)
{
    gboolean took_another = FALSE, left_one = FALSE;

    for (guint i = 0; i < c->n; i++) {
        if (slow_held(c, i) == NULL)
            took_another = took_another || taken[i];
        else
            left_one = left_one || (!taken[i] && slow_room(c, i) >= share);
    }
    assert_false(took_another && left_one);
}

static gint64 check_case(GRand *rand, Case *c, LhPartitionRoom *room)
{
    g_autoptr(GArray) seats = g_array_new(FALSE, FALSE, sizeof(guint));
    LhPartitionUse held[MOST];
    LhPartitionAsk ask = {c->throughput, c->min, c->dedicated, held, c->n_held};
    gboolean taken[MOST];
    gboolean enough = c->dedicated ? slow_dedicated(c, taken) : slow_shared(c, taken);
    LhPartitionAnswer answer;
    guint n = 0;

    (void)rand;
    renumber(c, c->held, c->n_held, held);
    answer = lh_partition_room_decide(room, &ask, seats);
    assert_int_equal(answer.enough, enough);
    if (!enough) {
        assert_true(answer.found < answer.needed);
        assert_true(answer.needed >= c->min);
        assert_int_equal(seats->len, 0);
        return 0;
    }
    for (guint i = 0; i < c->n; i++)
        n += taken[i];
    assert_int_equal(seats->len, n);
    assert_int_equal(answer.share, (c->throughput + n - 1) / n);
    for (guint i = 0; i < seats->len; i++) {
        const char *id = lh_partition_room_id(room, g_array_index(seats, guint, i));
        guint at = 0;
        while (strcmp(c->seats[at].id, id) != 0)
            at++;
        assert_true(taken[at]);
        if (i > 0)
            assert_true(strcmp(lh_partition_room_id(room, g_array_index(seats, guint, i - 1)), id) <
                        0);
    }
    if (!c->dedicated) {
        assert_within_capacity(c, taken, answer.share);
        assert_moves_little(c, taken, answer.share);
    }
    return n;
}

/* What was taken is kept from then on, by the same service, and seen by the room's other questions. */
static void check_kept(const Case *c, LhPartitionRoom *room)
{
    g_autoptr(GArray) seats = g_array_new(FALSE, FALSE, sizeof(guint));
    LhPartitionUse held[MOST], next[MOST];
    LhPartitionAsk ask = {c->throughput, c->min, c->dedicated, held, c->n_held};
    LhPartitionAnswer answer;

    renumber(c, c->held, c->n_held, held);
    answer = lh_partition_room_decide(room, &ask, seats);
    for (guint i = 0; i < seats->len; i++)
        next[i] = (LhPartitionUse){.seat = g_array_index(seats, guint, i),
                                   .last = TRUE,
                                   .used = answer.share,
                                   .dedicated = c->dedicated};
    ask.held = next;
    ask.n_held = seats->len;
    lh_partition_room_put(room, next, seats->len);
    assert_true(lh_partition_room_keeps(room, &ask));
    ask.min = ask.n_held + 1;
    assert_false(lh_partition_room_keeps(room, &ask));
    for (guint i = 0; i < seats->len; i++) {
        assert_true(lh_partition_room_users(room, next[i].seat) >= 1);
        if (!c->dedicated)
            assert_false(lh_partition_room_over(room, next[i].seat));
    }
    lh_partition_room_lift(room, next, seats->len);
}

static void test_against_the_reference(void **state)
{
    guint enough = 0, not_enough = 0, dedicated = 0, several = 0;

    (void)state;
    for (guint32 seed = 0; seed < 40000; seed++) {
        g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
        g_autoptr(LhPartitionRoom) room = NULL;
        g_autoptr(LhPartitionRoom) copy = NULL;
        LhPartitionUse uses[MOST], numbered[MOST];
        gint64 n;
        Case c;

        random_case(rand, &c);
        room = room_of_case(rand, &c);
        for (guint i = (guint)g_rand_int_range(rand, 0, 4); i > 0; i--) {
            guint n_uses = random_uses(rand, &c, uses);
            renumber(&c, uses, n_uses, numbered);
            lh_partition_room_put(room, numbered, n_uses);
            if (g_rand_int_range(rand, 0, 4) == 0)
                lh_partition_room_lift(room, numbered, n_uses);
            else
                book_slow(&c, uses, n_uses);
        }
        c.n_held = g_rand_boolean(rand) ? random_uses(rand, &c, c.held) : 0;
        g_qsort_with_data(c.held, (gint)c.n_held, sizeof *c.held, held_by_id, &c);
        copy = lh_partition_room_copy(room);
        n = check_case(rand, &c, room);
        assert_int_equal(check_case(rand, &c, copy), n);
        if (n > 0)
            check_kept(&c, copy);
        enough += n > 0;
        not_enough += n == 0;
        dedicated += n > 0 && c.dedicated;
        several += n > 2;
    }
    /* Too little of anything proves nothing. */
    assert_true(enough > 10000);
    assert_true(not_enough > 5000);
    assert_true(dedicated > 1000);
    assert_true(several > 3000);
}

static void test_shares(void **state)
{
    (void)state;
    assert_int_equal(lh_partition_share(0, 3), 0);
    assert_int_equal(lh_partition_share(9, 3), 3);
    assert_int_equal(lh_partition_share(10, 3), 4);
    assert_int_equal(lh_partition_share(LH_PARTITION_MOST, 1), LH_PARTITION_MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_shared_takes_the_fullest_that_fit),
        cmocka_unit_test(test_shared_keeps_what_it_holds),
        cmocka_unit_test(test_leaving_is_not_free),
        cmocka_unit_test(test_dedicated),
        cmocka_unit_test(test_what_is_not_known_is_not_used),
        cmocka_unit_test(test_against_the_reference),
    };

    return cmocka_run_group_tests_name("partition_rules", tests, NULL, NULL);
}
