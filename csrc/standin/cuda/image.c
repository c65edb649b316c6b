/* Reads the names in a code image: a cubin's (ELF) sections and symbols, a PTX text's entries. Fat binaries
 * are not unpacked. */
#include "module.h"

#include <ctype.h>
#include <elf.h>
#include <string.h>

#define FATBIN_MAGIC 0xBA55ED50u
#define FATBIN_WRAPPER 0x466243B1u
#define TEXT_PREFIX ".text."

/* The image says itself how large it is; it is the program's own, and trusted as a real driver would not. */
static void read_elf(CUmodule module, const unsigned char *image) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(image + header->e_shoff);
    const char *names = (const char *)image + sections[header->e_shstrndx].sh_offset;
    for (unsigned i = 0; i < header->e_shnum; i++) {
        const char *name = names + sections[i].sh_name;
        if (!strncmp(name, TEXT_PREFIX, strlen(TEXT_PREFIX)))
            module_add_function(module, name + strlen(TEXT_PREFIX), strlen(name + strlen(TEXT_PREFIX)));
        if (sections[i].sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(const void *)(image + sections[i].sh_offset);
        const char *strings = (const char *)image + sections[sections[i].sh_link].sh_offset;
        for (size_t j = 0; j < sections[i].sh_size / sizeof *symbols; j++)
            if (ELF64_ST_TYPE(symbols[j].st_info) == STT_OBJECT && symbols[j].st_size)
                module_add_global(module, strings + symbols[j].st_name, symbols[j].st_size);
    }
}

static void read_ptx(CUmodule module, const char *text) {
    while ((text = strstr(text, ".entry"))) {
        text += strlen(".entry");
        while (isspace((unsigned char)*text))
            text++;
        size_t length = strcspn(text, " \t\r\n({;");
        if (length)
            module_add_function(module, text, length);
    }
}

CUresult image_read(CUmodule module, const void *image) {
    uint32_t magic;
    memcpy(&magic, image, sizeof magic);
    if (!memcmp(image, ELFMAG, SELFMAG)) {
        read_elf(module, image);
        return CUDA_SUCCESS;
    }
    if (magic == FATBIN_MAGIC || magic == FATBIN_WRAPPER) {
        module->opaque = true;
        return CUDA_SUCCESS;
    }
    if (!strstr(image, ".version") || !strstr(image, ".target"))
        return CUDA_ERROR_INVALID_IMAGE;
    read_ptx(module, image);
    return CUDA_SUCCESS;
}
