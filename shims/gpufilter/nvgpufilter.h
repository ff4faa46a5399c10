/* The functions of libnvgpufilter.so, which a program links or loads itself; see nvenc-filter.md. */
#ifndef NVGPUFILTER_H
#define NVGPUFILTER_H

#ifdef __cplusplus
extern "C" {
#endif

/* Puts the filter into the NVIDIA libraries that are loaded. Returns 0, also if there is nothing to do; -1 after one
 * line on standard error. May be called from any thread; errno is kept. */
int nvgpufilter_install(void);

/* The address that the first loaded object whose path contains object calls for symbol; NULL if no such object is
 * loaded, or if it does not import the symbol. A lazy import that has not been called is bound to the object's own
 * PLT. */
void *nvgpufilter_bound_import(const char *object, const char *symbol);

#ifdef __cplusplus
}
#endif

#endif
