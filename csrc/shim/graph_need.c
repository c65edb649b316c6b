/* Implements graph_need.h.
 *
 * An allocation can use another one's memory only if its node comes after the node that frees the other. So
 * when an allocation begins, all those may be held that are not known to be freed before it or to begin after
 * it. The largest of these sums is the graph's need; in a captured stream, where each node comes after the
 * one before, it is exactly the peak. */
#include "graph_need.h"

#include <stdlib.h>
#include <string.h>

#include "hooks.h"

#define NESTING 8
#define MOST_ITEMS 8192u       /* beyond these bounds all allocations count as held at once */
#define MOST_WORDS (16u << 20) /* of the sets below: 128 MiB */
#define NOWHERE ((size_t)-1)

/* An allocation node, or all those of a child graph on one device. */
struct item {
    CUdeviceptr address;
    CUdevice device;
    uint64_t peak, left;
    size_t begin, end; /* places in `nodes`; NOWHERE: not freed in this graph */
};

struct shape {
    CUgraphNode *nodes; /* sorted, so that a node's place is found */
    size_t node_count;
    struct item *items;
    size_t item_count, item_room;
    size_t *from, *to; /* edges */
    size_t edge_count;
    uint64_t *begun, *freed; /* for each node a set of items: those begun and freed up to it */
    size_t words;            /* of one set */
};

static int compare(uint64_t one, uint64_t other) {
    return one < other ? -1 : one > other;
}

static int by_handle(const void *one, const void *other) {
    return compare((uintptr_t)*(CUgraphNode const *)one, (uintptr_t)*(CUgraphNode const *)other);
}

static int by_address(const void *one, const void *other) {
    return compare(((const struct item *)one)->address, ((const struct item *)other)->address);
}

static size_t place_of(const struct shape *shape, CUgraphNode node) {
    CUgraphNode *found = bsearch(&node, shape->nodes, shape->node_count, sizeof node, by_handle);
    return found ? (size_t)(found - shape->nodes) : NOWHERE;
}

static bool add_item(struct shape *shape, struct item item) {
    if (shape->item_count == shape->item_room) {
        size_t room = shape->item_room ? 2 * shape->item_room : 64;
        struct item *items = realloc(shape->items, room * sizeof *items);
        if (items == NULL)
            return false;
        shape->items = items;
        shape->item_room = room;
    }
    shape->items[shape->item_count++] = item;
    return true;
}

static bool need_of(CUgraph graph, int nesting, struct graph_need *need);

static bool add_child(struct shape *shape, size_t place, int nesting) {
    CUgraph child;
    struct graph_need inner;
    if (nesting == NESTING ||
        cot_driver.cuGraphChildGraphNodeGetGraph(shape->nodes[place], &child) != CUDA_SUCCESS)
        return true;
    if (!need_of(child, nesting + 1, &inner))
        return false;
    for (unsigned i = 0; i < inner.devices; i++)
        if (!add_item(shape, (struct item){.device = inner.on[i].device,
                                           .peak = inner.on[i].peak,
                                           .left = inner.on[i].left,
                                           .begin = place,
                                           .end = NOWHERE}))
            return false;
    return true;
}

static bool add_node(struct shape *shape, size_t place, int type, int nesting) {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH)
        return add_child(shape, place, nesting);
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || cot_driver.cuGraphMemAllocNodeGetParams == NULL ||
        cot_driver.cuGraphMemAllocNodeGetParams(shape->nodes[place], &parameters) != CUDA_SUCCESS)
        return true;
    const CUmemLocation *location = &parameters.poolProps.location;
    CUdevice device = location->type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN
                          ? location->localized.device
                          : location->id;
    return add_item(shape, (struct item){.address = parameters.dptr,
                                         .device = device,
                                         .peak = parameters.bytesize,
                                         .left = parameters.bytesize,
                                         .begin = place,
                                         .end = NOWHERE});
}

static void note_free(struct shape *shape, size_t place) {
    struct item wanted = {0};
    if (cot_driver.cuGraphMemFreeNodeGetParams == NULL ||
        cot_driver.cuGraphMemFreeNodeGetParams(shape->nodes[place], &wanted.address) != CUDA_SUCCESS)
        return;
    struct item *found = bsearch(&wanted, shape->items, shape->item_count, sizeof wanted, by_address);
    if (found != NULL && wanted.address != 0)
        found->end = place;
}

static bool read_nodes(CUgraph graph, struct shape *shape, int nesting) {
    size_t count = 0;
    if (cot_driver.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0)
        return true;
    int *types = malloc(count * sizeof *types);
    shape->nodes = malloc(count * sizeof *shape->nodes);
    bool whole = types != NULL && shape->nodes != NULL;
    if (whole && cot_driver.cuGraphGetNodes(graph, shape->nodes, &count) == CUDA_SUCCESS)
        shape->node_count = count;
    qsort(shape->nodes, shape->node_count, sizeof *shape->nodes, by_handle);
    for (size_t i = 0; whole && i < shape->node_count; i++) {
        if (cot_driver.cuGraphNodeGetType(shape->nodes[i], &types[i]) != CUDA_SUCCESS)
            types[i] = -1;
        whole = add_node(shape, i, types[i], nesting);
    }
    qsort(shape->items, shape->item_count, sizeof *shape->items, by_address);
    for (size_t i = 0; whole && shape->item_count && i < shape->node_count; i++)
        if (types[i] == CU_GRAPH_NODE_TYPE_MEM_FREE)
            note_free(shape, i);
    free(types);
    return whole;
}

/* From CUDA 12.3 on edges may carry data, and are then not told by the first form. */
static CUresult edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, uint64_t *data, size_t *count) {
    if (cot_driver.cuGraphGetEdges_v2 != NULL)
        return cot_driver.cuGraphGetEdges_v2(graph, from, to, data, count);
    return cot_driver.cuGraphGetEdges != NULL ? cot_driver.cuGraphGetEdges(graph, from, to, count)
                                              : CUDA_ERROR_NOT_SUPPORTED;
}

static bool read_edges(CUgraph graph, struct shape *shape) {
    size_t count = 0;
    if (edges(graph, NULL, NULL, NULL, &count) != CUDA_SUCCESS)
        return false;
    if (count == 0)
        return true;
    CUgraphNode *ends = malloc(2 * count * sizeof *ends);
    uint64_t *data = malloc(count * sizeof *data);
    shape->from = malloc(2 * count * sizeof *shape->from);
    bool known =
        ends && data && shape->from && edges(graph, ends, ends + count, data, &count) == CUDA_SUCCESS;
    if (known) {
        shape->to = shape->from + count;
        shape->edge_count = count;
        for (size_t i = 0; i < 2 * count; i++) {
            shape->from[i] = place_of(shape, ends[i]);
            known &= shape->from[i] != NOWHERE;
        }
    }
    free(ends);
    free(data);
    return known;
}

static void include(uint64_t *set, size_t item) {
    set[item / 64] |= 1ull << item % 64;
}

static bool includes(const uint64_t *set, size_t item) {
    return set[item / 64] >> item % 64 & 1;
}

static void join(uint64_t *set, const uint64_t *other, size_t words) {
    for (size_t i = 0; i < words; i++)
        set[i] |= other[i];
}

/* Hands each node's sets on to the nodes after it, in an order in which every node has all of its own by
 * then. */
static bool follow_edges(struct shape *shape) {
    size_t nodes = shape->node_count, count = shape->edge_count, words = shape->words;
    size_t *memory = calloc(4 * nodes + 1 + count, sizeof *memory);
    if (memory == NULL)
        return false;
    size_t *waiting = memory, *queue = waiting + nodes, *filled = queue + nodes;
    size_t *start = filled + nodes, *after = start + nodes + 1; /* the nodes after each node */
    size_t ready = 0;
    for (size_t i = 0; i < count; i++) {
        waiting[shape->to[i]]++;
        start[shape->from[i] + 1]++;
    }
    for (size_t i = 0; i < nodes; i++) {
        start[i + 1] += start[i];
        filled[i] = start[i];
        if (waiting[i] == 0)
            queue[ready++] = i;
    }
    for (size_t i = 0; i < count; i++)
        after[filled[shape->from[i]]++] = shape->to[i];
    for (size_t done = 0; done < ready; done++) {
        size_t node = queue[done];
        for (size_t i = start[node]; i < start[node + 1]; i++) {
            join(shape->begun + after[i] * words, shape->begun + node * words, words);
            join(shape->freed + after[i] * words, shape->freed + node * words, words);
            if (--waiting[after[i]] == 0)
                queue[ready++] = after[i];
        }
    }
    free(memory);
    return true;
}

/* False if that is too much to find out: then nothing is known of the order. */
static bool find_order(CUgraph graph, struct shape *shape) {
    size_t words = (shape->item_count + 63) / 64;
    if (shape->item_count > MOST_ITEMS || shape->node_count > MOST_WORDS / 2 / words ||
        !read_edges(graph, shape))
        return false;
    shape->begun = calloc(2 * shape->node_count * words, sizeof *shape->begun);
    if (shape->begun == NULL)
        return false;
    shape->freed = shape->begun + shape->node_count * words;
    shape->words = words;
    for (size_t i = 0; i < shape->item_count; i++) {
        include(shape->begun + shape->items[i].begin * words, i);
        if (shape->items[i].end != NOWHERE)
            include(shape->freed + shape->items[i].end * words, i);
    }
    return follow_edges(shape);
}

/* What one item may hold when another begins. */
static uint64_t held(const struct shape *shape, size_t item, size_t beginning) {
    const struct item *items = shape->items;
    const uint64_t *begun = shape->begun + items[beginning].begin * shape->words;
    if (item == beginning)
        return items[item].peak;
    if (includes(shape->freed + items[beginning].begin * shape->words, item))
        return 0;
    if (includes(begun, item))
        return items[item].left;
    return includes(shape->begun + items[item].begin * shape->words, beginning) ? 0 : items[item].peak;
}

static uint64_t sum(uint64_t one, uint64_t other) {
    return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

static bool add_device(struct graph_need *need, CUdevice device) {
    for (unsigned i = 0; i < need->devices; i++)
        if (need->on[i].device == device)
            return true;
    if (need->devices == COT_CARDS)
        return false;
    need->on[need->devices].device = device;
    need->on[need->devices].peak = need->on[need->devices].left = 0;
    need->devices++;
    return true;
}

static void find_peak(const struct shape *shape, bool ordered, CUdevice device, uint64_t *peak,
                      uint64_t *left) {
    uint64_t all = 0;
    for (size_t i = 0; i < shape->item_count; i++)
        if (shape->items[i].device == device) {
            all = sum(all, shape->items[i].peak);
            if (!ordered || shape->items[i].end == NOWHERE)
                *left = sum(*left, shape->items[i].left);
        }
    if (!ordered)
        *peak = all;
    for (size_t i = 0; ordered && i < shape->item_count; i++) {
        uint64_t total = 0;
        for (size_t j = 0; j < shape->item_count; j++)
            if (shape->items[j].device == device)
                total = sum(total, held(shape, j, i));
        *peak = total > *peak ? total : *peak;
    }
}

static bool need_of(CUgraph graph, int nesting, struct graph_need *need) {
    struct shape shape = {0};
    need->devices = 0;
    bool known = read_nodes(graph, &shape, nesting);
    for (size_t i = 0; known && i < shape.item_count; i++)
        known = add_device(need, shape.items[i].device);
    if (known && shape.item_count) {
        bool ordered = find_order(graph, &shape);
        for (unsigned i = 0; i < need->devices; i++)
            find_peak(&shape, ordered, need->on[i].device, &need->on[i].peak, &need->on[i].left);
    }
    free(shape.begun);
    free(shape.from);
    free(shape.items);
    free(shape.nodes);
    return known;
}

bool graph_need(CUgraph graph, struct graph_need *need) {
    return need_of(graph, 0, need);
}
