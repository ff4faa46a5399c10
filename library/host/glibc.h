/* Included before everything else by the compiler (-include): it binds functions to the first of their versions in glibc. Without
 * it the linker takes the newest version, and a library that was built with a new glibc cannot be loaded with an old one. In the
 * old ones, from before 2.34, they are in libpthread and libdl, so that the libraries name these too. */
#ifndef NVMLFAB_GLIBC_H
#define NVMLFAB_GLIBC_H

#ifndef __ASSEMBLER__
#if defined __x86_64__
#define BIND(name) __asm__(".symver " #name ", " #name "@GLIBC_2.2.5")
__asm__(".symver dlinfo, dlinfo@GLIBC_2.3.3");
#elif defined __aarch64__
#define BIND(name) __asm__(".symver " #name ", " #name "@GLIBC_2.17")
BIND(dlinfo);
#endif
BIND(dladdr);
BIND(dlclose);
BIND(dlerror);
BIND(dlopen);
BIND(dlsym);
BIND(pthread_attr_getstack);
BIND(pthread_attr_getstacksize);
#ifndef NVMLFAB_WRAPS_PTHREAD_CREATE
BIND(pthread_create);
#endif
BIND(pthread_detach);
BIND(pthread_getattr_np);
BIND(pthread_getspecific);
BIND(pthread_join);
BIND(pthread_key_create);
BIND(pthread_mutex_trylock);
BIND(pthread_once);
BIND(pthread_setspecific);
BIND(pthread_sigmask);
BIND(sem_init);
BIND(sem_post);
BIND(sem_wait);
#undef BIND
#endif
#endif
