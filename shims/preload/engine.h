// The path engine. It knows a few prefixes, such as /sys/bus/pci, and a staged tree that holds what is to be seen below
// them, under the full original paths. Tree and host are merged: what is staged wins, what only the host has remains.
//
// A path is followed component by component, symbolic links included, as the program sees it: that is its virtual path.
// The virtual path decides; the path handed to libc is the virtual path itself or its counterpart in the staged tree.

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
  enum { WHOLE, BEGINS } match;  // BEGINS: the last component only begins so
};

extern const struct prefix library_prefixes[];  // ends with a NULL path
extern const char library_variable[];           // for the error message
const char *library_root(void);                 // the staged tree; NULL or "" leaves the library inert

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
  char witness[PATH_MAX + 32];  // a directory that every staged tree has
  struct top tops[MAX_TOPS];
  int top_count;
  dev_t watched[MAX_TOPS + 1];  // the file systems of the tops, ended by 0
  unsigned char letter1[256], letter2[256];  // for each letter after the slash, the tops that have it there, as bits
  _Atomic bool cwd_far;  // the working directory lies neither above nor below a top nor in the staged tree, and
                         // nobody has called chdir
};

extern struct state state;

void start(void);

// slot holds the address of the function behind one of ours.
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

// ---- Paths (walk.c) ------------------------------------------------------------------------------------------------

enum region { OUTSIDE, ABOVE, INSIDE };  // ABOVE: an ancestor of a prefix

struct place {
  enum region region;
  bool exists;
  bool staged;           // the last component stands in the staged tree
  bool moved;            // the program's own spelling would not lead there
  bool lost;             // a directory on the way is missing
  bool slash;            // the path ends in a slash: it wants a directory
  char room[PATH_MAX];   // the staged root, then the virtual path
  char todo[PATH_MAX + 64];  // walk: what is left of the path, at the end
};

// borrow takes a place, or a room for a path, that is not on the stack: a signal handler's may be 8 KB in all. It may be
// called in handlers and after a fork. NULL: there is no memory.
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
  MAKE = 4,         // the call makes a new name: the tree refuses that as sysfs does
  DROP = 8,         // the call removes or renames: likewise
  FILESYSTEM = 16,  // the call asks about the file system
  WRITE = 32,       // the call changes what the file holds: the tree refuses that for attributes that nobody may write
};

// How by the flags of a call.
#define LINK(flags) ((flags) & AT_SYMLINK_NOFOLLOW ? NOFOLLOW : FOLLOW)
#define OPENS(flags)                                                     \
  (((flags) & O_CREAT ? CREATE : 0) |                                    \
   (!((flags) & O_PATH) && (flags) & (O_ACCMODE | O_TRUNC) ? WRITE : 0) | \
   ((flags) & O_NOFOLLOW || ((flags) & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL) ? NOFOLLOW : 0))

enum region region_of(const char *path);

// walk follows path from dirfd and fills in where it leads. It returns 0 or an error number. resolve are flags of openat2.
int walk(struct place *place, int dirfd, const char *path, enum how how, unsigned long resolve);

// redirect returns the path to hand to libc instead of path: path itself, or one in place. NULL: errno says why.
const char *redirect(struct place *place, int dirfd, const char *path, enum how how);
const char *redirect_within(struct place *place, int dirfd, const char *path, enum how how, unsigned long resolve);

// virtual_of writes the virtual path of an open directory or of the working directory (AT_FDCWD) to buffer and says in
// *staged whether it lies in the staged tree. It returns false if there is none, or no room.
bool virtual_of(int fd, char *buffer, size_t size, bool *staged);

// unstage takes the staged root off a path below it that lies in the tree, and returns whether there was one.
bool unstage(char *path);

static inline char *virtual_path(struct place *place) { return place->room + state.root_length; }
static inline size_t virtual_room(void) { return PATH_MAX - state.root_length; }

// ---- Memory of the program's, which may not be there (memory.c) -----------------------------------------------------

// length_of returns the length of a path, or -1 if it runs into memory that cannot be read.
ssize_t length_of(const char *path);

// readable says whether the eight bytes around an address can be read.
bool readable(const void *address);

// hand copies to a buffer of the program's. It returns false and sets errno to EFAULT if that cannot be written.
bool hand(void *buffer, const void *data, size_t size);

// faults says that a path begins in memory that cannot be read: the kernel shall say so. The screen reads no further than
// the longest top.
static inline bool faults(const char *path) {
  if (__builtin_expect(((uintptr_t)path & 4095) > 4096 - sizeof state.tops->path, 0)) return length_of(path) < 0;
  return !readable(path);
}

// ---- The screen: what can be told at next to no cost -----------------------------------------------------------------

bool near_top(const char *path);
bool far_from(int dirfd);
bool left_in_tree(int fd);

// plainly_far says it of most absolute paths, by two letters.
static inline bool plainly_far(const char *path) {
  if (path[0] != '/') return false;
  unsigned char tops = state.letter1[(unsigned char)path[1]];
  return !tops || (!(tops & ALWAYS) && !(tops & state.letter2[(unsigned char)path[2]]));
}

// far says that a path reaches the tree by a symbolic link or by ".." only, if at all. The caller tries it as it is; if
// that fails as it would in a part of the tree that the host lacks, or ends on a file system that has parts of the tree,
// redirect takes the long way.
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

// INTERPOSE declares my_NAME, which bears the symbol NAME, and a slot for the function behind it. The other C name keeps
// clear of the prototypes, attributes and macros of libc's headers.
#define INTERPOSE(result, name, parameters)          \
  EXPORT result my_##name parameters __asm__(#name); \
  static void *next_##name;                          \
  static const struct slot slot_##name __attribute__((used, section("slots"))) = {&next_##name, #name};

// NEXT is the function behind ours; READY is it once start has filled the slots.
#define READY(name) ((__typeof__(&my_##name))next_##name)
#define NEXT(name) ((__typeof__(&my_##name))find(&slot_##name))

// ALSO gives my_NAME one more symbol. On 64-bit machines the functions for large files are the plain ones.
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
