/* Reads CUDA_VISIBLE_DEVICES: which GPUs a process sees, and in which order.
 *
 * As CUDA documents it: indices or UUIDs (a prefix is enough if it names one GPU), up to the first that is
 * not valid. GPUs that a container does not have do not exist for it, and the others count from 0. A process
 * sees at most one MIG instance, and then no other GPU. */
#include "driver.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct machine {
    const struct standin_state *state;
    uint64_t shown;
};

static bool there(const struct machine *machine, uint32_t card) {
    return machine->shown >> card & 1;
}

static bool has_instances(const struct standin_state *state, int card) {
    for (uint32_t i = 0; i < state->cards; i++)
        if (state->card[i].parent == (uint64_t)card + 1)
            return true;
    return false;
}

static int first_instance(const struct machine *machine, int card) {
    for (uint32_t i = 0; i < machine->state->cards; i++)
        if (there(machine, i) && machine->state->card[i].parent == (uint64_t)card + 1)
            return (int)i;
    return -1;
}

/* An instance is lost with its card. */
static bool lost(const struct standin_state *state, int card) {
    uint64_t parent = state->card[card].parent;
    return state->card[card].lost || (parent && state->card[parent - 1].lost);
}

static int by_uuid(const struct machine *machine, const char *text, size_t length) {
    int found = -1;
    for (uint32_t i = 0; i < machine->state->cards; i++) {
        if (!there(machine, i) || strncasecmp(machine->state->card[i].uuid, text, length))
            continue;
        if (found >= 0)
            return -1;
        found = (int)i;
    }
    return found;
}

static int by_index(const struct machine *machine, const char *text, size_t length) {
    uint64_t wanted = 0;
    for (size_t i = 0; i < length; i++) {
        if (!isdigit((unsigned char)text[i]) || wanted > STANDIN_CARDS)
            return -1;
        wanted = wanted * 10 + (uint64_t)(text[i] - '0');
    }
    for (uint32_t i = 0; i < machine->state->cards; i++)
        if (there(machine, i) && !machine->state->card[i].parent && wanted-- == 0)
            return (int)i;
    return -1;
}

static int named(const struct machine *machine, const char *text, size_t length) {
    if (!length)
        return -1;
    bool uuid = length > 4 && (!strncasecmp(text, "GPU-", 4) || !strncasecmp(text, "MIG-", 4));
    int card = uuid ? by_uuid(machine, text, length) : by_index(machine, text, length);
    /* a card in MIG mode is no device itself */
    card = card >= 0 && has_instances(machine->state, card) ? first_instance(machine, card) : card;
    return card >= 0 && lost(machine->state, card) ? -1 : card;
}

static int from_list(const struct machine *machine, const char *list, int *cards) {
    int count = 0;
    while (*list) {
        while (*list == ' ')
            list++;
        size_t length = strcspn(list, ",");
        size_t end = length;
        while (end && list[end - 1] == ' ')
            end--;
        int card = named(machine, list, end);
        if (card < 0)
            break;
        for (int i = 0; i < count; i++)
            if (cards[i] == card)
                return 0; /* a card named twice: CUDA then sees none */
        cards[count++] = card;
        list += length;
        if (*list == ',')
            list++;
    }
    return count;
}

int visible_cards(const struct standin_state *state, int *cards) {
    const struct machine machine = {state, standin_shown(state)};
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;
    if (list) {
        count = from_list(&machine, list, cards);
    } else {
        for (uint32_t i = 0; i < state->cards; i++)
            if (there(&machine, i) && !state->card[i].parent && !lost(state, (int)i))
                cards[count++] = has_instances(state, (int)i) ? first_instance(&machine, (int)i) : (int)i;
    }
    for (int i = 0; i < count; i++)
        if (state->card[cards[i]].parent) {
            cards[0] = cards[i];
            return 1;
        }
    return count;
}
