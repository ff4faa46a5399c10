/* The two symbols that the front answers alone: error texts, and the table of unnamed
 * functions that nvidia-smi asks for. */
#include "front.h"

const char *nvmlfab_error_string(nvmlReturn_t code)
{
    static const char *const text[] = {
        [0] = "Success",
    };
    size_t n = (size_t)code;
    if (n < sizeof text / sizeof text[0] && text[n] != NULL)
        return text[n];
    return "Unknown Error";
}

/* Arguments differ from slot to slot and are not all pointers, so nothing is written. */
static nvmlReturn_t unknown_slot(void) { return NVML_ERROR_NOT_SUPPORTED; }

#define SLOTS 256

nvmlReturn_t nvmlfab_export_table(const void **table, const void *guid)
{
    static const unsigned char smi[16] = {
        0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
    };
    /* the first word is the size in bytes; slot i is word i */
    static struct {
        uint64_t size;
        nvmlReturn_t (*slot[SLOTS - 1])(void);
    } unnamed;

    if (table == NULL || guid == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memcmp(guid, smi, sizeof smi) != 0)
        return NVML_ERROR_NOT_FOUND;
    for (size_t i = 0; i < SLOTS - 1; i++)
        unnamed.slot[i] = unknown_slot;
    unnamed.size = sizeof unnamed;
    *table = &unnamed;
    return NVML_SUCCESS;
}
