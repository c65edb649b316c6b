/* Simulates NVIDIA's container runtime: with COTENANT_STANDIN_RUNTIME set, a process has only the GPUs that
 * NVIDIA_VISIBLE_DEVICES names, as if the others were not in the machine.
 *
 * Names are indices ("0"), instances of a GPU ("0:1"), whole UUIDs, or "all". "void", "none", an empty value
 * and unknown names show no GPU: the real runtime would not start such a container, or start it without a
 * driver. */
#include "state.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is(const char *text, size_t length, const char *name) {
    return strlen(name) == length && !strncasecmp(text, name, length);
}

/* Digits alone; -1 if there is anything else. */
static int number(const char *text, size_t length) {
    int value = 0;
    for (size_t i = 0; i < length; i++) {
        if (!isdigit((unsigned char)text[i]) || value > STANDIN_CARDS)
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return length ? value : -1;
}

static bool names(const struct standin_state *state, int index, const char *text, size_t length) {
    const struct standin_card *card = &state->card[index];
    const char *colon = memchr(text, ':', length);
    if (is(text, length, "all") || is(text, length, card->uuid))
        return true;
    if (!colon)
        return !card->parent && number(text, length) == (int)card->ordinal;
    size_t before = (size_t)(colon - text);
    return card->parent && number(text, before) == (int)state->card[card->parent - 1].ordinal &&
           number(colon + 1, length - before - 1) == (int)card->ordinal;
}

static bool named(const struct standin_state *state, int index, const char *list) {
    for (;;) {
        while (*list == ' ')
            list++;
        size_t length = strcspn(list, ","), end = length;
        while (end && list[end - 1] == ' ')
            end--;
        if (end && names(state, index, list, end))
            return true;
        if (!list[length])
            return false;
        list += length + 1;
    }
}

/* A card comes with its instances, and an instance with its card. */
uint64_t standin_shown(const struct standin_state *state) {
    const char *list = getenv("NVIDIA_VISIBLE_DEVICES");
    uint64_t shown = 0;
    if (!getenv("COTENANT_STANDIN_RUNTIME"))
        return ~0ull;
    for (int i = 0; list && i < (int)state->cards; i++) {
        int parent = (int)state->card[i].parent - 1;
        if (named(state, i, list))
            shown |= 1ull << i | (parent >= 0 ? 1ull << parent : 0);
        if (parent >= 0 && named(state, parent, list))
            shown |= 1ull << i;
    }
    return shown;
}
