// The path engine. A library names a few prefixes, such as /sys/bus/pci, and a staged tree, which holds the files to show
// below the prefixes: /sys/bus/pci/slots is shown from ROOT/sys/bus/pci/slots. The program sees the files of the tree and
// those of the host; if both have a path, it sees the tree's.
//
// The engine follows a path component by component, symbolic links included. The path without links, as the program sees it,
// is called its virtual path. If that lies below a prefix and the tree has it, the engine hands libc the path in the tree;
// otherwise it hands over the virtual path.

#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

// ---- What a library redirects: each library defines these ----------------------------------------------------------

struct prefix {
  const char *path;
  enum { WHOLE, BEGINS } match;  // BEGINS: any name that begins with the last component, as pci0000:00 begins with pci
};

extern const struct prefix library_prefixes[];  // ends with a NULL path
extern const char library_variable[];           // names the environment variable in the error message
const char *library_root(void);                 // the staged tree; with NULL or "" the library does nothing

// ---- State, fixed when the library is loaded (state.c) -------------------------------------------------------------

enum { UNKNOWN, STARTING, INERT, ACTIVE };

enum { MAX_TOPS = 7, ALWAYS = 1 << MAX_TOPS };

struct top {
  char path[32];  // the first component of a prefix, such as /sys
  size_t length;
};

struct state {
  _Atomic int phase;
  char root[PATH_MAX];  // absolute, canonical if it existed at load
  size_t root_length;
  char witness[PATH_MAX + 32];  // a directory that every staged tree has; if it is missing, so is the tree
  struct top tops[MAX_TOPS];
  int top_count;
  dev_t watched[MAX_TOPS + 1];  // the file systems on which the tops lie, ended by 0
  unsigned char letter1[256], letter2[256];  // the tops whose first or second letter after the slash this is: a bit for each
  _Atomic bool cwd_far;  // the working directory is not /, does not lie at or below a top or in the staged tree, and the
                         // process has not changed it
  ptrdiff_t errno_at;  // where errno is, counted from the thread pointer: the same in every thread
};

extern struct state state;

void start(void);

// A slot holds the address of the function that ours hides: libc's, or that of the next preloaded library.
struct slot {
  void **address;
  const char *name;
};

void *find_now(const struct slot *slot);

static inline void *find(const struct slot *slot) {
  void *address = __atomic_load_n(slot->address, __ATOMIC_ACQUIRE);
  return __builtin_expect(address != NULL, 1) ? address : find_now(slot);
}
void complain_once(void);

static inline bool active(void) {
  int phase = atomic_load_explicit(&state.phase, memory_order_acquire);
  if (__builtin_expect(phase == UNKNOWN, 0)) {
    start();
    phase = atomic_load_explicit(&state.phase, memory_order_acquire);
  }
  return phase == ACTIVE;
}

// errno_now is errno, without a call to libc: that would take longer than the whole screen below.
static inline int errno_now(void) { return *(int *)((char *)__builtin_thread_pointer() + state.errno_at); }

// ---- Paths (walk.c) ------------------------------------------------------------------------------------------------

enum region { OUTSIDE, ABOVE, INSIDE };  // ABOVE: an ancestor of a prefix

struct place {
  enum region region;
  bool exists;
  bool staged;           // the last component stands in the staged tree
  bool moved;            // the path leads through the tree, so that the kernel would follow it to another place
  bool lost;             // a directory on the way is missing
  bool slash;            // the path ends in a slash, so only a directory will do
  char room[PATH_MAX];   // the staged root, and after it the virtual path
  char todo[PATH_MAX + 64];  // for walk, which keeps what is left of the path at the end of it
};

// borrow gives a place, or room for a path, outside the stack, because a signal handler's whole stack may have 8 KB. Signal
// handlers and forked children may call it. It returns NULL if there is no memory.
struct place *borrow(void);
void give_back(struct place *place);
static inline void give_back_at(struct place **place) {
  if (*place) give_back(*place);
}
#define BORROW(name) __attribute__((cleanup(give_back_at))) struct place *name = borrow()

enum how {
  FOLLOW = 0,
  NOFOLLOW = 1,
  CREATE = 2,       // the call creates what is missing
  MAKE = 4,         // the call makes a new name, which the tree refuses as sysfs does
  DROP = 8,         // the call removes or renames, which the tree refuses too
  FILESYSTEM = 16,  // the call asks about the file system
  WRITE = 32,       // the call writes to the file, which the tree refuses if nobody has permission to write it
};

// LINK and OPENS work out an enum how from the flags of a call.
#define LINK(flags) ((flags) & AT_SYMLINK_NOFOLLOW ? NOFOLLOW : FOLLOW)
#define OPENS(flags)                                                     \
  (((flags) & O_CREAT ? CREATE : 0) |                                    \
   (!((flags) & O_PATH) && (flags) & (O_ACCMODE | O_TRUNC) ? WRITE : 0) | \
   ((flags) & O_NOFOLLOW || ((flags) & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL) ? NOFOLLOW : 0))

enum region region_of(const char *path);

// walk follows path from dirfd and fills in where it leads. It returns 0 or an error number. resolve has the RESOLVE_ flags
// of openat2.
int walk(struct place *place, int dirfd, const char *path, enum how how, unsigned long resolve);

// redirect returns the path to hand to libc: path itself if the call can be made with it, or else one in place. It returns
// NULL and sets errno if the call fails.
const char *redirect(struct place *place, int dirfd, const char *path, enum how how);
const char *redirect_within(struct place *place, int dirfd, const char *path, enum how how, unsigned long resolve);

// virtual_of writes the virtual path of an open directory or of the working directory (AT_FDCWD) to buffer and says in
// *staged whether it lies in the staged tree. It returns false if there is no such directory or no room.
bool virtual_of(int fd, char *buffer, size_t size, bool *staged);

// unstage removes the staged root from the front of a path, if it has one and the rest lies at or above a prefix. It returns
// whether it did.
bool unstage(char *path);

static inline char *virtual_path(struct place *place) { return place->room + state.root_length; }
static inline size_t virtual_room(void) { return PATH_MAX - state.root_length; }

// ---- The program's memory, by addresses that may be wrong (memory.c) --------------------------------------------------

// length_of returns the length of a path, or -1 if it runs into memory that cannot be read.
ssize_t length_of(const char *path);

// readable says whether the byte at an address can be read. It makes a system call.
bool readable(const void *address);

// hand copies to a buffer of the program. It returns false and sets errno to EFAULT if the buffer cannot be written.
bool hand(void *buffer, const void *data, size_t size);

// faults says whether a path begins in memory that cannot be read; then the call is left to the kernel, which answers
// EFAULT. It needs a system call, two where the path begins near the end of a page. Only as many bytes are tried as the
// screen below reads.
static inline bool faults(const char *path) {
  if (__builtin_expect(((uintptr_t)path & 4095) > 4096 - sizeof state.tops->path, 0)) return length_of(path) < 0;
  return !readable(path);
}

// was_read says whether the error of a call that failed tells that the kernel has read the path.
static inline bool was_read(int error) { return error == ENOENT || error == ENOTDIR; }

// ---- The screen: which paths cannot lead into the tree, told without a walk -------------------------------------------

bool near_top(const char *path);
bool far_from(int dirfd);
bool lies_in_tree(int fd);

// plainly_far is far for most absolute paths, by their first two letters.
static inline bool plainly_far(const char *path) {
  if (path[0] != '/') return false;
  unsigned char tops = state.letter1[(unsigned char)path[1]];
  return !tops || (!(tops & ALWAYS) && !(tops & state.letter2[(unsigned char)path[2]]));
}

// far says that a path does not lead into the tree by its names; it still may by a symbolic link or by "..". The caller calls
// libc with the path as it is. It asks redirect only if the call fails as it would where the host lacks a part of the tree, or
// if it ends on a file system that has parts of the tree.
static inline bool far(int dirfd, const char *path) {
  if (path[0] == '/') return plainly_far(path) || !near_top(path);
  return (dirfd == AT_FDCWD && atomic_load_explicit(&state.cwd_far, memory_order_relaxed)) || !path[0] || far_from(dirfd);
}

static inline bool watched(dev_t device) {
  for (const dev_t *d = state.watched; *d; d++)
    if (*d == device) return true;
  return false;
}

// ---- Interposing ---------------------------------------------------------------------------------------------------

#define EXPORT __attribute__((visibility("default")))
#define NOINLINE __attribute__((noinline))

// INTERPOSE declares my_NAME, whose symbol is NAME, and a slot for the function that it hides. In C it has a name of its own
// because libc's headers have prototypes, attributes and macros for NAME.
#define INTERPOSE(result, name, parameters)          \
  EXPORT result my_##name parameters __asm__(#name); \
  static void *next_##name;                          \
  static const struct slot slot_##name __attribute__((used, section("slots"))) = {&next_##name, #name};

// NEXT is the function that ours hides. READY is the same without a look at the slot, for use after start has filled it.
#define READY(name) ((__typeof__(&my_##name))next_##name)
#define NEXT(name) ((__typeof__(&my_##name))find(&slot_##name))

// ALSO gives my_NAME one more symbol. On 64-bit machines stat64 and its like do the same as stat and its like.
#define ALSO(other, name) EXPORT extern __typeof__(my_##name) also_##other __asm__(#other) __attribute__((alias(#name)));

_Static_assert(sizeof(off_t) == 8 && sizeof(struct dirent) == sizeof(struct dirent64), "64-bit machines only");

// Functions that other files of the library call.
int my_open(const char *path, int flags, mode_t mode) __asm__("open");
int my_openat(int dirfd, const char *path, int flags, mode_t mode) __asm__("openat");
int my_stat(const char *path, struct stat *st) __asm__("stat");
int my_lstat(const char *path, struct stat *st) __asm__("lstat");
DIR *my_opendir(const char *path) __asm__("opendir");
DIR *my_fdopendir(int fd) __asm__("fdopendir");
struct dirent *my_readdir(DIR *dir) __asm__("readdir");
int my_closedir(DIR *dir) __asm__("closedir");
char *my_getcwd(char *buffer, size_t size) __asm__("getcwd");
int my_chdir(const char *path) __asm__("chdir");
int my_truncate(const char *path, off_t length) __asm__("truncate");
int my_fchdir(int fd) __asm__("fchdir");
ssize_t my_readlink(const char *path, char *buffer, size_t size) __asm__("readlink");
ssize_t my_readlinkat(int dirfd, const char *path, char *buffer, size_t size) __asm__("readlinkat");
ssize_t my_getdents64(int fd, void *buffer, size_t size) __asm__("getdents64");
