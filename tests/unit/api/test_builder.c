/*
 * api/builder: where texts come to lie behind a struct that ends in padding.
 */
#include "api/builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    const char *text;
    const guint64 *words;
    int full, half;
} Struct;

static gpointer finish(LhBuilder *b, LhSlab *slab)
{
    gboolean in_slab;
    gpointer block = lh_builder_finish(b, slab, &in_slab);
    assert_true(in_slab);
    lh_builder_clear(b);
    return block;
}

static void texts_begin_in_the_padding_unless_words_follow(void **state)
{
    (void)state;
    LhSlab slab = {0};
    for (guint words = 0; words < 2; words++) {
        LhBuilder b;
        lh_builder_init(&b);
        lh_builder_words(&b, sizeof(Struct));
        lh_builder_spare(&b, sizeof(int));
        ((Struct *)lh_builder_at(&b, 0))->full = 7;
        lh_builder_set_string(&b, offsetof(Struct, text), "text", 4);
        if (words > 0) {
            guint32 place = lh_builder_words(&b, sizeof(guint64));
            memset(lh_builder_at(&b, place), 0xff, sizeof(guint64));
            lh_builder_set_words(&b, offsetof(Struct, words), place);
        }
        Struct *done = finish(&b, &slab);
        assert_string_equal(done->text, "text");
        assert_int_equal(done->full, 7);
        if (words > 0)
            assert_true(*done->words == G_MAXUINT64);
        else
            assert_ptr_equal(done->text, &done->half);
        lh_slab_free(done);
    }
    lh_slab_clear(&slab);
}

/* A block is never smaller than its struct, which may be copied. */
static void a_struct_without_texts_keeps_its_padding(void **state)
{
    (void)state;
    LhSlab slab = {0};
    LhBuilder b;
    lh_builder_init(&b);
    lh_builder_words(&b, sizeof(Struct));
    lh_builder_spare(&b, sizeof(int));
    Struct *done = finish(&b, &slab);
    Struct copy = *done;
    assert_null(copy.text);
    lh_slab_free(done);
    lh_slab_clear(&slab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_begin_in_the_padding_unless_words_follow),
        cmocka_unit_test(a_struct_without_texts_keeps_its_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
