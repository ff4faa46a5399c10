// Where a path leads, as the program sees it.

#include "engine.h"
#include "kernel.h"

#include <linux/openat2.h>

enum { MAX_LINKS = 40 };

enum region region_of(const char *path) {
  enum region region = OUTSIDE;
  size_t length = strlen(path);
  if (length == 1) length = 0;  // the root directory is above every prefix
  for (const struct prefix *p = library_prefixes; p->path; p++) {
    size_t n = strlen(p->path);
    if (!strncmp(path, p->path, n) && (p->match == BEGINS || path[n] == '/' || path[n] == '\0')) return INSIDE;
    if (length < n && !strncmp(path, p->path, length) && p->path[length] == '/') region = ABOVE;
  }
  return region;
}

bool unstage(char *path) {
  if (strncmp(path, state.root, state.root_length) || path[state.root_length] != '/') return false;
  char *virtual = path + state.root_length;
  struct stat st;
  switch (region_of(virtual)) {
    case OUTSIDE:
      return false;
    case ABOVE:  // shown from the tree only if the host has no such directory
      if (kernel_stat(AT_FDCWD, virtual, &st, 0) != -ENOENT) return false;
      break;
    case INSIDE:
      break;
  }
  memmove(path, virtual, strlen(virtual) + 1);
  return true;
}

bool virtual_of(int fd, char *buffer, size_t size, bool *staged) {
  *staged = false;
  ssize_t n = fd == AT_FDCWD ? kernel(SYS_getcwd, (long)buffer, (long)size, 0, 0) : kernel_fd_path(fd, buffer, size);
  if (n <= 0 || buffer[0] != '/') return false;
  *staged = unstage(buffer);
  return true;
}

// root_stands says whether the staged tree exists, and prints a message if it does not.
static bool root_stands(void) {
  struct stat st;
  if (kernel_stat(AT_FDCWD, state.witness, &st, 0) == 0 && S_ISDIR(st.st_mode)) return true;
  complain_once();
  return false;
}

// look reads the virtual path as a symbolic link, in the staged tree or on the host. It returns the length of the target,
// -EINVAL if it is no link, -ESTALE if there is no staged tree, or another negative error number.
static ssize_t look(struct place *p, char *link, size_t size) {
  p->region = region_of(virtual_path(p));
  p->staged = false;
  if (p->region == ABOVE) return -EINVAL;
  if (p->region == INSIDE) {
    ssize_t n = kernel_readlink(p->room, link, size);
    bool there = n >= 0 || n == -EINVAL;
    if (!there && !root_stands()) return -ESTALE;
    if (n != -ENOENT) {
      p->staged = p->moved = true;
      return n;
    }
  }
  return kernel_readlink(virtual_path(p), link, size);
}

// directory returns 0 if the virtual path is a directory, or an error number. Only a directory may come before "." and "..".
static int directory(struct place *p) {
  struct stat st;
  enum region region = region_of(virtual_path(p));
  if (region == ABOVE) return 0;
  int error = region == INSIDE ? kernel_stat(AT_FDCWD, p->room, &st, 0) : -ENOENT;
  if (error == -ENOENT) error = kernel_stat(AT_FDCWD, virtual_path(p), &st, 0);
  if (error) return -error;
  return S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
}

// same_object says whether a link in /proc leads where its text says. It does not if the process has another root.
static bool same_object(const char *link, const char *target) {
  struct stat a, b;
  return kernel_stat(AT_FDCWD, link, &a, 0) == 0 && kernel_stat(AT_FDCWD, target, &b, 0) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

static size_t parent(char *virtual, size_t used) {
  while (used && virtual[--used] != '/') {
  }
  virtual[used] = '\0';
  return used;
}

// finish finds out about a directory that walk has not looked at: one above the prefixes, or one reached by "..".
static void finish(struct place *p) {
  char *virtual = virtual_path(p), link[1];
  if (!*virtual) memcpy(virtual, "/", 2);
  look(p, link, sizeof link);
  p->exists = true;
  struct stat st;
  if (p->region != ABOVE || kernel_stat(AT_FDCWD, virtual, &st, 0) != -ENOENT) return;
  p->exists = p->staged = kernel_stat(AT_FDCWD, p->room, &st, 0) == 0;
  p->moved |= p->staged;
}

// too_long is the error for a path that does not fit. It is 0 for a path outside the tree, which the kernel will judge.
static int too_long(struct place *p) {
  return p->moved || region_of(virtual_path(p)) == INSIDE ? ENAMETOOLONG : 0;
}

// crosses says whether a path has left the mount where it started. For the tree a mount is a top.
static bool crosses(const char *virtual, const char *start) {
  size_t n = strcspn(virtual + (*virtual == '/'), "/") + (*virtual == '/');
  return strlen(start) != n || strncmp(start, virtual, n);
}

int walk(struct place *p, int dirfd, const char *path, enum how how, unsigned long resolve) {
  char *todo = p->todo, *virtual = virtual_path(p), start[sizeof state.tops->path + 1] = "";
  enum { LONGEST = sizeof p->todo };
  memset(p, 0, offsetof(struct place, room));
  size_t length = strlen(path), used = 0;
  if (length >= PATH_MAX) return 0;  // the kernel will say so
  char *next = memcpy(todo + LONGEST - length - 1, path, length + 1);
  memcpy(p->room, state.root, state.root_length);
  virtual[0] = '\0';
  if (*path == '/' && resolve & RESOLVE_BENEATH) return 0;  // EXDEV
  if (*path != '/' || resolve & RESOLVE_IN_ROOT) {
    if (!virtual_of(dirfd, virtual, virtual_room(), &p->moved)) return 0;
    used = strlen(virtual);
    if (used == 1) virtual[used = 0] = '\0';
    size_t top = used ? 1 + strcspn(virtual + 1, "/") : 0;
    memcpy(start, virtual, top < sizeof start ? top : sizeof start - 1);
  }
  size_t base = resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT) ? used : 0;
  bool settled = false;
  for (int links = 0; *(next += strspn(next, "/"));) {
    size_t n = strcspn(next, "/");
    bool last = !next[n + strspn(next + n, "/")];
    p->slash = last && next[n];
    settled = false;
    if (next[0] == '.' && (n == 1 || (n == 2 && next[1] == '.'))) {
      int error = used ? directory(p) : 0;
      if (error) return p->moved ? error : 0;
      if (n == 2 && used == base && resolve & RESOLVE_BENEATH) return p->moved ? EXDEV : 0;
      if (n == 2 && used > base) used = parent(virtual, used);
      next += n;
      continue;
    }
    if (used + 1 + n + 1 >= virtual_room()) return too_long(p);
    virtual[used] = '/';
    memcpy(virtual + used + 1, next, n);
    virtual[used += 1 + n] = '\0';
    next += n;
    ssize_t got = look(p, todo, (size_t)(next - todo));
    settled = p->region != ABOVE;
    if (got == -ESTALE) return ENOENT;
    if (got == -ENOENT) {
      p->lost = !last;
      if (used + strlen(next) + 1 >= virtual_room()) return too_long(p);
      strcpy(virtual + used, next);
      return 0;
    }
    if (got < 0 && got != -EINVAL) return p->moved ? (int)-got : 0;
    if (got < 0 || (last && (how & NOFOLLOW) && !p->slash)) continue;
    if (got >= next - todo) return too_long(p);
    if (++links > MAX_LINKS || resolve & RESOLVE_NO_SYMLINKS) return p->moved ? ELOOP : 0;
    todo[got] = '\0';
    if (todo[0] == '/' && resolve & RESOLVE_BENEATH) return p->moved ? EXDEV : 0;
    if (todo[0] == '/' && !p->staged && !strncmp(virtual, "/proc/", 6)) {
      if (resolve & RESOLVE_NO_MAGICLINKS) return p->moved ? ELOOP : 0;
      if (resolve & RESOLVE_IN_ROOT) return p->moved ? EXDEV : 0;
      if (!same_object(virtual, todo)) return 0;
      if (unstage(todo)) {
        p->moved = true;
        got = (ssize_t)strlen(todo);
      }
    }
    next = memmove(next - got, todo, (size_t)got);
    used = *next == '/' ? base : parent(virtual, used);
    virtual[used] = '\0';
    settled = false;
  }
  if (settled)
    p->exists = true;
  else
    finish(p);
  return resolve & RESOLVE_NO_XDEV && (p->moved || p->staged) && crosses(virtual, start) ? EXDEV : 0;
}

// refusal is the error by which sysfs refuses, to root too, to make or remove a name, or to write an attribute that nobody
// has permission to write. It is 0 if sysfs would not refuse.
static int refusal(const struct place *p, enum how how) {
  if (p->region != INSIDE || !(how & (CREATE | MAKE | DROP | WRITE))) return 0;
  struct stat st;
  if (how & WRITE && p->staged && kernel_stat(AT_FDCWD, p->room, &st, 0) == 0 && S_ISREG(st.st_mode) && !(st.st_mode & 0222))
    return EACCES;
  if (!(how & (CREATE | MAKE | DROP))) return 0;
  if (p->lost) return ENOENT;
  if (how & DROP) return p->exists ? EPERM : ENOENT;
  if (how & MAKE) return p->exists ? EEXIST : EPERM;
  return p->exists ? 0 : EACCES;
}

const char *redirect(struct place *p, int dirfd, const char *path, enum how how) {
  return redirect_within(p, dirfd, path, how, 0);
}

const char *redirect_within(struct place *p, int dirfd, const char *path, enum how how, unsigned long resolve) {
  int error = !p ? ENOMEM : length_of(path) < 0 ? EFAULT : 0;
  if (!error && !*path) return path;
  if (!error) error = walk(p, dirfd, path, how, resolve);
  if (!error) error = refusal(p, how);
  if (error) {
    errno = error;
    return NULL;
  }
  if (!p->moved && !p->staged) return path;
  char *virtual = virtual_path(p);
  if ((how & FILESYSTEM) && p->region == INSIDE) {
    virtual[1 + strcspn(virtual + 1, "/")] = '\0';
    return virtual;
  }
  if (p->slash) strcat(p->room, "/");
  return p->staged ? p->room : virtual;
}

// ---- The screen ----------------------------------------------------------------------------------------------------

// near_top says whether an absolute path may be at or below a top.
bool near_top(const char *path) {
  if (path[1] == '\0' || path[1] == '/' || path[1] == '.') return true;
  for (int i = 0; i < state.top_count; i++) {
    const struct top *top = &state.tops[i];
    if (!strncmp(path, top->path, top->length) && (path[top->length] == '/' || path[top->length] == '\0')) return true;
  }
  return false;
}

bool far_from(int dirfd) {
  BORROW(room);
  bool staged;
  return !room || !virtual_of(dirfd, room->room, PATH_MAX, &staged) || (!staged && !near_top(room->room));
}

// lies_in_tree says whether an open file lies on a file system that has parts of the tree.
bool lies_in_tree(int fd) {
  struct stat st;
  return kernel(SYS_fstat, fd, (long)&st, 0, 0) == 0 && watched(st.st_dev);
}
