/* See the header. An atom is the text of a record in a set of names. */
#include "api/atom.h"

#include "base/name_set.h"
#include "base/slab.h"

#include <string.h>

typedef struct {
    const char *name; /* text */
    guint32 refs;
    guint32 len;
    char text[];
} Atom;

static LhNameSet atoms = {.name_at = offsetof(Atom, name)};
static LhSlab slab;

/* Neighbours mostly have the same atoms: these are found without the hash of a whole text. */
static Atom *lately[256];

static Atom **lately_slot(const char *text, gsize len)
{
    guint64 word = 0;
    memcpy(&word, text + (len > sizeof word ? len - sizeof word : 0), MIN(len, sizeof word));
    return &lately[(word ^ len) * G_GUINT64_CONSTANT(0x9e3779b97f4a7c15) >> 56];
}

static gboolean fits_slab(gsize len)
{
    return sizeof(Atom) + len + 1 <= LH_SLAB_MAX_BYTES;
}

const char *lh_atom_ref(const char *text, gsize len)
{
    Atom **slot = lately_slot(text, len), *atom = *slot;
    if (atom != NULL && atom->len == len && memcmp(atom->text, text, len) == 0) {
        atom->refs++;
        return atom->text;
    }
    atom = lh_name_set_get_n(&atoms, text, len);
    if (atom == NULL) {
        gsize size = sizeof *atom + len + 1;
        atom = fits_slab(len) ? lh_slab_alloc(&slab, size) : g_malloc(size);
        *atom = (Atom){.name = atom->text, .len = (guint32)len};
        memcpy(atom->text, text, len);
        atom->text[len] = '\0';
        lh_name_set_put(&atoms, atom);
    }
    atom->refs++;
    *slot = atom;
    return atom->text;
}

void lh_atom_unref(const char *text)
{
    if (text == NULL)
        return;
    Atom *atom = (Atom *)(text - offsetof(Atom, text));
    if (--atom->refs > 0)
        return;
    Atom **slot = lately_slot(atom->text, atom->len);
    if (*slot == atom)
        *slot = NULL;
    lh_name_set_take(&atoms, text);
    if (fits_slab(atom->len))
        lh_slab_free(atom);
    else
        g_free(atom);
    if (atoms.n == 0)
        lh_name_set_clear(&atoms);
}
