/* The relocation of the core. Some 22,000 words of its data, in 130 pages, depend on where it is loaded. To relocate them, the
 * dynamic linker would read half a megabyte of relocations and take a page fault for each page, of which every process then has a
 * copy of its own. So the core is linked for an address that is free in nearly every process (see the Makefile), which the linker
 * proposes to the kernel, and library/relr packs the relocations into a table. Only a core that is loaded elsewhere, such as the
 * second one of a forked process, needs it: nvmlfab_relocate, which is DT_INIT and so runs before everything else in the core,
 * applies the table. (glibc applies such tables as DT_RELR, but not before 2.36.) */
#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* The tags of the table's address and size. */
enum { TABLE = 0x6fffe000, TABLE_SIZE = 0x6fffe001 };

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden"))); /* where the core is loaded */

/* Adds to the words of a table, which holds addresses, and after each a bit for each of the words that follow. */
static void add(uintptr_t distance, const uintptr_t *entry, size_t size)
{
    uintptr_t *where = NULL;
    for (const uintptr_t *end = entry + size / sizeof *entry; entry < end; entry++) {
        if ((*entry & 1) == 0) {
            where = (uintptr_t *)(distance + *entry);
            *where++ += distance;
        } else {
            uintptr_t *word = where;
            for (uintptr_t bits = *entry >> 1; bits != 0; bits >>= 1, word++)
                if ((bits & 1) != 0)
                    *word += distance;
            where += 8 * sizeof *entry - 1;
        }
    }
}

/* Nothing here needs to be relocated itself. A core without a table was relocated by the dynamic linker. */
__attribute__((visibility("hidden"))) void nvmlfab_relocate(void)
{
    const ElfW(Phdr) *segment = (const ElfW(Phdr) *)((uintptr_t)&__ehdr_start + __ehdr_start.e_phoff);
    const uintptr_t distance = (uintptr_t)&__ehdr_start - segment->p_vaddr; /* from where it was linked for; the first one has the headers */
    const uintptr_t *table = NULL;
    size_t size = 0;
    for (unsigned i = 0; i < __ehdr_start.e_phnum; i++, segment++) {
        const uintptr_t start = distance + segment->p_vaddr, page = start & ~(uintptr_t)4095;
        /* All but the first one, which has the table, at once and not by faults. Linux refuses before 5.14. */
        if (segment->p_type == PT_LOAD && i > 0)
            madvise((void *)page, start + segment->p_filesz - page, MADV_POPULATE_READ);
        if (segment->p_type != PT_DYNAMIC)
            continue;
        for (const ElfW(Dyn) *dyn = (const ElfW(Dyn) *)start; dyn->d_tag != DT_NULL; dyn++) {
            if (dyn->d_tag == TABLE)
                table = (const uintptr_t *)(distance + dyn->d_un.d_ptr);
            else if (dyn->d_tag == TABLE_SIZE)
                size = dyn->d_un.d_val;
        }
    }
    if (table != NULL && distance != 0)
        add(distance, table, size);
}
