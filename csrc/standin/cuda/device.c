/* Implements devices and their attributes. Figures that differ between models come from the state; the rest
 * is what current data-centre GPUs answer. */
#define _GNU_SOURCE
#include "driver.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

API cuDeviceGet(CUdevice *device, int ordinal) {
    struct device *found;
    TRY(device_get(ordinal, &found));
    NEED(device);
    *device = ordinal;
    return CUDA_SUCCESS;
}

API cuDeviceGetCount(int *count) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(count);
    *count = driver->devices;
    return CUDA_SUCCESS;
}

API cuDeviceGetName(char *name, int length, CUdevice index) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(name && length > 0);
    snprintf(name, (size_t)length, "%s", device->shared->name);
    return CUDA_SUCCESS;
}

static int hex(char digit) {
    return isdigit((unsigned char)digit) ? digit - '0' : tolower((unsigned char)digit) - 'a' + 10;
}

/* "GPU-" or "MIG-" and 32 hexadecimal digits between dashes. */
API cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice index) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(uuid);
    int digits = 0;
    memset(uuid, 0, sizeof *uuid);
    for (const char *at = device->shared->uuid + 4; *at && digits < 32; at++) {
        if (!isxdigit((unsigned char)*at))
            continue;
        uuid->bytes[digits / 2] = (char)((unsigned char)uuid->bytes[digits / 2] << 4 | hex(*at));
        digits++;
    }
    return CUDA_SUCCESS;
}

API cuDeviceGetUuid(CUuuid *uuid, CUdevice index) {
    return cuDeviceGetUuid_v2(uuid, index);
}

API cuDeviceTotalMem_v2(size_t *bytes, CUdevice index) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(bytes);
    *bytes = standin_capacity(device->shared);
    return CUDA_SUCCESS;
}

/* The card in the bus: an instance sits where its parent does. */
static unsigned bus_of(const struct device *device) {
    const struct standin_card *card = device->shared;
    const struct standin_card *first = card - device->card;
    return (unsigned)(card->parent ? first[card->parent - 1].ordinal : card->ordinal) + 1;
}

API cuDeviceGetPCIBusId(char *text, int length, CUdevice index) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(text && length > 0);
    snprintf(text, (size_t)length, "0000:%02X:00.0", bus_of(device));
    return CUDA_SUCCESS;
}

API cuDeviceGetByPCIBusId(CUdevice *found, const char *text) {
    NEED(found && text);
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    unsigned domain = 0, bus = 0, slot = 0;
    NEED(sscanf(text, "%x:%x:%x", &domain, &bus, &slot) == 3 || sscanf(text, "%x:%x", &bus, &slot) == 2);
    for (int i = 0; i < driver->devices; i++)
        if (bus_of(&driver->device[i]) == bus) {
            *found = i;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

API cuDeviceComputeCapability(int *major, int *minor, CUdevice index) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(major && minor);
    *major = (int)device->shared->major;
    *minor = (int)device->shared->minor;
    return CUDA_SUCCESS;
}

/* attribute number, value */
static const int figures[][2] = {
    {1, 1024},       {2, 1024},        {3, 1024},    {4, 64},       {5, 2147483647},  {6, 65535},
    {7, 65535},      {8, 49152},       {9, 65536},   {10, 32},      {11, 2147483647}, {12, 65536},
    {13, 1410000},   {14, 512},        {15, 1},      {17, 0},       {18, 0},          {19, 1},
    {20, 0},         {21, 131072},     {22, 131072}, {23, 65536},   {24, 16384},      {25, 16384},
    {26, 16384},     {27, 32768},      {28, 32768},  {29, 2048},    {30, 512},        {31, 1},
    {32, 1},         {34, 0},          {35, 0},      {36, 1215000}, {37, 5120},       {38, 41943040},
    {39, 2048},      {40, 3},          {41, 1},      {42, 32768},   {43, 2048},       {44, 1},
    {45, 32768},     {46, 32768},      {47, 8192},   {48, 8192},    {49, 32768},      {50, 0},
    {51, 32},        {52, 32768},      {53, 32768},  {54, 2046},    {55, 32768},      {56, 131072},
    {57, 65536},     {58, 16384},      {59, 16384},  {60, 16384},   {61, 32768},      {62, 2048},
    {63, 32768},     {64, 32768},      {65, 2048},   {66, 32768},   {67, 32768},      {68, 2046},
    {69, 268435456}, {70, 131072},     {71, 65000},  {72, 2097120}, {73, 32768},      {74, 32768},
    {77, 32768},     {78, 1},          {79, 1},      {80, 1},       {81, 167936},     {82, 65536},
    {83, 1},         {84, 0},          {86, 0},      {87, 2},       {88, 0},          {89, 1},
    {90, 1},         {91, 1},          {92, 0},      {93, 0},       {94, 0},          {95, 1},
    {96, 0},         {97, 166912},     {98, 0},      {99, 1},       {100, 0},         {101, 0},
    {102, 1},        {103, 1},         {104, 0},     {105, 0},      {106, 32},        {107, 0},
    {108, 0},        {109, 134213632}, {110, 0},     {111, 1024},   {112, 0},         {113, 1},
    {114, 0},        {115, 1},         {116, 0},     {117, 0},      {118, 0},         {119, 0},
    {120, 0},        {121, 0},         {122, 0},     {123, 0},      {124, 0},         {125, 0},
    {126, 1},        {127, 0},         {128, 0},     {129, 0},      {130, 0},         {131, -1},
    {132, 0},        {133, 0},         {134, 0},     {135, 0},      {136, 0},         {137, 0},
    {138, 0},        {139, 0},         {140, 0},     {141, 0},      {142, 0},         {143, 0},
    {144, 0},        {145, 0},         {146, 0},     {147, 0},      {148, 0},         {149, 0},
};

enum {
    ATTRIBUTE_SMS = 16,
    ATTRIBUTE_BUS = 33,
    ATTRIBUTE_MAJOR = 75,
    ATTRIBUTE_MINOR = 76,
    ATTRIBUTE_BOARD = 85
};

API cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice index) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(value);
    switch ((int)attribute) {
    case ATTRIBUTE_SMS:
        *value = (int)device->shared->multiprocessors;
        return CUDA_SUCCESS;
    case ATTRIBUTE_BUS:
    case ATTRIBUTE_BOARD:
        *value = (int)bus_of(device);
        return CUDA_SUCCESS;
    case ATTRIBUTE_MAJOR:
        *value = (int)device->shared->major;
        return CUDA_SUCCESS;
    case ATTRIBUTE_MINOR:
        *value = (int)device->shared->minor;
        return CUDA_SUCCESS;
    default:
        for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
            if (figures[i][0] == (int)attribute) {
                *value = figures[i][1];
                return CUDA_SUCCESS;
            }
        return CUDA_ERROR_INVALID_VALUE;
    }
}

API cuDeviceGetProperties(CUdevprop *properties, CUdevice index) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(properties);
    *properties = (CUdevprop){
        1024, {1024, 1024, 64}, {2147483647, 65535, 65535}, 49152, 65536, 32, 2147483647, 65536, 1410000,
        512};
    return CUDA_SUCCESS;
}

API cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice index) {
    (void)type;
    struct device *device;
    TRY(device_get(index, &device));
    NEED(supported);
    *supported = 0;
    return CUDA_SUCCESS;
}
