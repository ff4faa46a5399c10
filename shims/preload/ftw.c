// ftw and nftw. Libc's own open directories by internal functions that a preloaded library does not see.

#include "engine.h"

#include <ftw.h>
#include <search.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef __GLIBC__  // musl has no flag by which a visitor can skip a part
enum { FTW_ACTIONRETVAL = 0, FTW_SKIP_SUBTREE = 2, FTW_SKIP_SIBLINGS };
#endif

typedef int visit_t(const char *path, const struct stat *st, int type, struct FTW *at);
typedef int old_visit_t(const char *path, const struct stat *st, int type);

struct tour {
  visit_t *visit;
  old_visit_t *old_visit;  // of ftw
  int flags;
  dev_t device;  // with FTW_MOUNT, the file system that the walk does not leave
  void *seen;    // the directories visited so far; not used with FTW_PHYS
  char path[PATH_MAX];
  struct FTW at;
};

struct object {
  dev_t device;
  ino_t inode;
};

static int compare(const void *a, const void *b) {
  const struct object *x = a, *y = b;
  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  return x->inode < y->inode ? -1 : x->inode > y->inode;
}

// first_time says whether a directory has not been visited yet, and remembers it. Several links may lead to one directory.
static bool first_time(struct tour *t, const struct stat *st) {
  struct object *o = malloc(sizeof *o);
  if (!o) return true;
  *o = (struct object){st->st_dev, st->st_ino};
  void **found = tsearch(o, &t->seen, compare);
  if (found && *(struct object **)found == o) return true;
  free(o);
  return false;
}

static int report(struct tour *t, const struct stat *st, int type) {
  if (t->visit) return t->visit(t->path, st, type, &t->at);
  static const int old[] = {[FTW_F] = FTW_F,   [FTW_D] = FTW_D,  [FTW_DNR] = FTW_DNR, [FTW_NS] = FTW_NS,
                            [FTW_SL] = FTW_F, [FTW_DP] = FTW_D, [FTW_SLN] = FTW_NS};
  return t->old_visit(t->path, st, old[type]);
}

// here changes to the directory of the file that is reported next.
static int here(struct tour *t) {
  if (!(t->flags & FTW_CHDIR) || t->at.base == 0) return 0;
  char parent[PATH_MAX];
  size_t n = (size_t)t->at.base;
  memcpy(parent, t->path, n);
  parent[n] = '\0';
  return my_chdir(parent);
}

static int visit(struct tour *t, const char *given, int start);

static int visit_directory(struct tour *t, const struct stat *st, int start) {
  bool skips = t->flags & FTW_ACTIONRETVAL;
  int base = t->at.base, result;
  size_t length = strlen(t->path);
  // A relative path starts where the walk began.
  if (start >= 0) (void)!my_fchdir(start);
  DIR *dir = my_opendir(t->path);
  if (!dir) {
    if (errno != EACCES) return -1;
    if (start >= 0 && here(t) < 0) return -1;
    return report(t, st, FTW_DNR);
  }
  if (start >= 0 && here(t) < 0) {
    my_closedir(dir);
    return -1;
  }
  result = t->flags & FTW_DEPTH ? 0 : report(t, st, FTW_D);
  if (result == 0) {
    size_t end = length && t->path[length - 1] == '/' ? length : length + 1;
    t->at.level++;
    t->at.base = (int)end;
    struct dirent *entry;
    while (result == 0 && (entry = my_readdir(dir))) {
      if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
      if (end + strlen(entry->d_name) >= sizeof t->path) {
        errno = ENAMETOOLONG;
        result = -1;
        break;
      }
      t->path[end - 1] = '/';
      strcpy(t->path + end, entry->d_name);
      result = visit(t, NULL, start);
    }
    t->at.level--;
    t->at.base = base;
    t->path[length] = '\0';
    if (skips && result == FTW_SKIP_SIBLINGS) result = 0;
    int kept = errno;
    my_closedir(dir);
    errno = kept;
    if (result == 0 && t->flags & FTW_DEPTH) {
      // Libc has not left the directory yet when it reports it.
      if (start >= 0 && (my_fchdir(start) < 0 || my_chdir(t->path) < 0)) return -1;
      result = report(t, st, FTW_DP);
    }
  } else {
    my_closedir(dir);
  }
  return result;
}

// visit reports what t->path names, and what is below it. start is the directory where the walk began, if the walk
// changes directories.
static int visit(struct tour *t, const char *given, int start) {
  struct stat st = {0};
  int type, result;
  if (start >= 0 && my_fchdir(start) < 0) return -1;
  if ((t->flags & FTW_PHYS ? my_lstat : my_stat)(t->path, &st) < 0) {
    if (errno != EACCES && errno != ENOENT) return -1;
    if (given && my_lstat(t->path, &st) < 0) return -1;
    type = !(t->flags & FTW_PHYS) && my_lstat(t->path, &st) == 0 && S_ISLNK(st.st_mode) ? FTW_SLN : FTW_NS;
  } else {
    type = S_ISDIR(st.st_mode) ? FTW_D : S_ISLNK(st.st_mode) ? FTW_SL : FTW_F;
    if (given) t->device = st.st_dev;
    if (t->flags & FTW_MOUNT && st.st_dev != t->device) return 0;
  }
  if (type == FTW_D) {
    if (!(t->flags & FTW_PHYS) && !first_time(t, &st)) return 0;
    result = visit_directory(t, &st, start);
  } else {
    if (start >= 0 && here(t) < 0) return -1;
    result = report(t, &st, type);
  }
  if (t->flags & FTW_ACTIONRETVAL && result == FTW_SKIP_SUBTREE) result = 0;
  return result;
}

static int tour(struct tour *t, const char *path) {
  size_t length = strlen(path);
  if (length >= sizeof t->path || !length) {
    errno = length ? ENAMETOOLONG : ENOENT;
    return -1;
  }
  memcpy(t->path, path, length + 1);
  while (length > 1 && t->path[length - 1] == '/') t->path[--length] = '\0';
  const char *slash = strrchr(t->path, '/');
  t->at.base = slash && slash[1] ? (int)(slash + 1 - t->path) : 0;
  int start = t->flags & FTW_CHDIR ? my_open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) : -1;
  if (t->flags & FTW_CHDIR && start < 0) return -1;
  int result = visit(t, path, start);
  int kept = errno;
  if (start >= 0) {
    (void)!my_fchdir(start);
    close(start);
  }
  tdestroy(t->seen, free);
  if (t->flags & FTW_ACTIONRETVAL && (result == FTW_SKIP_SUBTREE || result == FTW_SKIP_SIBLINGS)) result = 0;
  errno = kept;
  return result;
}

INTERPOSE(int, nftw, (const char *path, visit_t *function, int files, int flags))
int my_nftw(const char *path, visit_t *function, int files, int flags) {
  if (!active()) return NEXT(nftw)(path, function, files, flags);
  if (flags & ~(FTW_PHYS | FTW_MOUNT | FTW_CHDIR | FTW_DEPTH | FTW_ACTIONRETVAL)) {
    errno = EINVAL;
    return -1;
  }
  struct tour t = {.visit = function, .flags = flags};
  return tour(&t, path);
}
ALSO(nftw64, nftw)

INTERPOSE(int, ftw, (const char *path, old_visit_t *function, int files))
int my_ftw(const char *path, old_visit_t *function, int files) {
  if (!active()) return NEXT(ftw)(path, function, files);
  struct tour t = {.old_visit = function};
  return tour(&t, path);
}
ALSO(ftw64, ftw)
