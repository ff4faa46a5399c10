// Directories that both the tree and the host have. Their names are read once, when the directory is opened or rewound.

#include "engine.h"
#include "kernel.h"

#include <pthread.h>
#include <stdlib.h>

struct listing {
  DIR *dir;
  char *data;  // entries as getdents64 writes them, which is also the layout of struct dirent
  size_t size, room, next;
  struct listing *link;
};

static struct listing *listings;
static _Atomic int listing_count;  // if it is 0, readdir need not take the lock
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void take_lock(void) { pthread_mutex_lock(&lock); }
static void give_lock(void) { pthread_mutex_unlock(&lock); }
static void survive_fork(void) { pthread_atfork(take_lock, give_lock, give_lock); }

// ---- Gathering -----------------------------------------------------------------------------------------------------

// belongs says whether the first of two directories lacks this name of the second, so that the listing gets it. below_only: a
// name that leads to no prefix is left out.
static bool belongs(const char *name, int first, const char *virtual, bool below_only) {
  if (!strcmp(name, ".") || !strcmp(name, "..")) return false;
  struct stat st;
  if (first >= 0 && kernel_stat(first, name, &st, AT_SYMLINK_NOFOLLOW) == 0) return false;
  if (!below_only) return true;
  BORROW(room);
  if (!room) return false;
  char *path = room->todo;
  size_t n = strlen(virtual);
  if (n == 1) n = 0;
  memcpy(path, virtual, n);
  if (n + 1 + strlen(name) >= sizeof room->todo) return false;
  path[n] = '/';
  strcpy(path + n + 1, name);
  return region_of(path) != OUTSIDE;
}

// gather adds the entries of fd to the listing; those of the second directory only if they belong.
static bool gather(struct listing *l, int fd, bool second, int first, const char *virtual, bool below_only) {
  enum { CHUNK = 32 << 10 };
  for (;;) {
    if (l->room - l->size < CHUNK) {
      size_t room = l->size + 2 * CHUNK;
      char *data = realloc(l->data, room);
      if (!data) return false;
      l->data = data;
      l->room = room;
    }
    char *from = l->data + l->size;
    long n = kernel(SYS_getdents64, fd, (long)from, CHUNK, 0);
    if (n <= 0) return n == 0;
    for (char *end = from + n; from < end;) {
      struct dirent *entry = (struct dirent *)from;
      size_t length = entry->d_reclen;
      from += length;
      if (second && !belongs(entry->d_name, first, virtual, below_only)) continue;
      memmove(l->data + l->size, entry, length);
      l->size += length;
      ((struct dirent *)(l->data + l->size - length))->d_off = (off_t)l->size;
    }
  }
}

// collect lists the directory that fd is open on, if both tree and host have it, and returns false otherwise.
static bool collect(struct listing *l, int fd) {
  BORROW(place);
  if (!place) return false;
  memcpy(place->room, state.root, state.root_length);
  char *virtual = virtual_path(place);
  bool staged;
  l->size = l->next = 0;
  if (!virtual_of(fd, virtual, virtual_room(), &staged)) return false;
  enum region region = region_of(virtual);
  if (region == OUTSIDE) return false;
  int tree = kernel_open(place->room, O_RDONLY | O_DIRECTORY);
  int host = kernel_open(virtual, O_RDONLY | O_DIRECTORY);
  bool both = tree >= 0 && host >= 0;
  if (both && region == INSIDE)
    both = gather(l, tree, false, -1, virtual, false) && gather(l, host, true, tree, virtual, false);
  else if (both)
    both = gather(l, host, false, -1, virtual, false) && gather(l, tree, true, host, virtual, true);
  if (tree >= 0) kernel_close(tree);
  if (host >= 0) kernel_close(host);
  return both;
}

static struct dirent *following(struct listing *l) {
  if (l->next >= l->size) return NULL;
  struct dirent *entry = (struct dirent *)(l->data + l->next);
  l->next += entry->d_reclen;
  return entry;
}

static void list(DIR *dir) {
  struct listing *l = calloc(1, sizeof *l);
  if (!l) return;
  int kept = errno;
  if (!collect(l, dirfd(dir))) {
    free(l->data);
    free(l);
    errno = kept;
    return;
  }
  pthread_once(&once, survive_fork);
  l->dir = dir;
  take_lock();
  l->link = listings;
  listings = l;
  atomic_fetch_add(&listing_count, 1);
  give_lock();
  errno = kept;
}

static struct listing *listing_of(DIR *dir) {
  if (!atomic_load_explicit(&listing_count, memory_order_acquire)) return NULL;
  take_lock();
  struct listing *l = listings;
  while (l && l->dir != dir) l = l->link;
  give_lock();
  return l;
}

// ---- What libc offers ----------------------------------------------------------------------------------------------

INTERPOSE(DIR *, fdopendir, (int fd))
DIR *my_fdopendir(int fd) {
  DIR *dir = NEXT(fdopendir)(fd);
  if (dir && active()) list(dir);
  return dir;
}

INTERPOSE(DIR *, opendir, (const char *path))
DIR *my_opendir(const char *path) {
  if (!active() || !path) return NEXT(opendir)(path);
  int fd = my_open(path, O_RDONLY | O_NONBLOCK | O_DIRECTORY | O_CLOEXEC, 0);
  if (fd < 0) return NULL;
  DIR *dir = my_fdopendir(fd);
  if (!dir) kernel_close(fd);
  return dir;
}

INTERPOSE(struct dirent *, readdir, (DIR *dir))
struct dirent *my_readdir(DIR *dir) {
  struct listing *l = listing_of(dir);
  return l ? following(l) : NEXT(readdir)(dir);
}
ALSO(readdir64, readdir)

INTERPOSE(int, readdir_r, (DIR *dir, struct dirent *entry, struct dirent **result))
int my_readdir_r(DIR *dir, struct dirent *entry, struct dirent **result) {
  struct listing *l = listing_of(dir);
  if (!l) return NEXT(readdir_r)(dir, entry, result);
  struct dirent *next = following(l);
  *result = next ? memcpy(entry, next, next->d_reclen) : NULL;
  return 0;
}
ALSO(readdir64_r, readdir_r)

INTERPOSE(void, rewinddir, (DIR *dir))
void my_rewinddir(DIR *dir) {
  struct listing *l = listing_of(dir);
  if (l)
    collect(l, dirfd(dir));
  else
    NEXT(rewinddir)(dir);
}

INTERPOSE(long, telldir, (DIR *dir))
long my_telldir(DIR *dir) {
  struct listing *l = listing_of(dir);
  return l ? (long)l->next : NEXT(telldir)(dir);
}

INTERPOSE(void, seekdir, (DIR *dir, long position))
void my_seekdir(DIR *dir, long position) {
  struct listing *l = listing_of(dir);
  if (l)
    l->next = (size_t)position;
  else
    NEXT(seekdir)(dir, position);
}

INTERPOSE(int, closedir, (DIR *dir))
int my_closedir(DIR *dir) {
  if (atomic_load_explicit(&listing_count, memory_order_acquire)) {
    take_lock();
    for (struct listing **l = &listings; *l; l = &(*l)->link) {
      if ((*l)->dir != dir) continue;
      struct listing *gone = *l;
      *l = gone->link;
      atomic_fetch_sub(&listing_count, 1);
      free(gone->data);
      free(gone);
      break;
    }
    give_lock();
  }
  return NEXT(closedir)(dir);
}

// getdents64 keeps its place in the listing as the file's offset, so the library need not notice when the file is closed.
INTERPOSE(ssize_t, getdents64, (int fd, void *buffer, size_t size))
ssize_t my_getdents64(int fd, void *buffer, size_t size) {
  struct listing l = {0};
  long position = -1;
  if (active() && collect(&l, fd)) position = kernel(SYS_lseek, fd, 0, SEEK_CUR, 0);
  if (position < 0) {
    free(l.data);
    return NEXT(getdents64)(fd, buffer, size);
  }
  size_t used = 0;
  l.next = (size_t)position;
  while (l.next < l.size) {
    struct dirent *entry = (struct dirent *)(l.data + l.next);
    if (used + entry->d_reclen > size) break;
    if (!hand((char *)buffer + used, entry, entry->d_reclen)) {
      free(l.data);
      return -1;
    }
    used += entry->d_reclen;
    l.next += entry->d_reclen;
  }
  bool stuck = !used && l.next < l.size;
  kernel(SYS_lseek, fd, (long)l.next, SEEK_SET, 0);
  free(l.data);
  if (!stuck) return (ssize_t)used;
  errno = EINVAL;
  return -1;
}

INTERPOSE(ssize_t, getdirentries64, (int fd, char *buffer, size_t size, off_t *base))
ssize_t my_getdirentries64(int fd, char *buffer, size_t size, off_t *base) {
  if (!active()) return NEXT(getdirentries64)(fd, buffer, size, base);
  long position = kernel(SYS_lseek, fd, 0, SEEK_CUR, 0);
  ssize_t n = my_getdents64(fd, buffer, size);
  if (n > 0) *base = position;
  return n;
}
ALSO(getdirentries, getdirentries64)
