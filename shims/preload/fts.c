// fts. Libc's own opens directories by internal functions that a preloaded library does not see. This one never changes the
// working directory, as if FTS_NOCHDIR were given.
//
// musl itself has no fts. A library that adds one calls our opendir and stat.

#include "engine.h"

#ifdef __GLIBC__

#include <fts.h>
#include <stdlib.h>

typedef int order_t(const FTSENT **, const FTSENT **);

static bool dot(const char *name) { return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])); }

// entry_of makes an entry. Its name, stat buffer and path lie after it in the same piece of memory.
static FTSENT *entry_of(const char *parent, const char *name, FTSENT *up, short level) {
  size_t before = strlen(parent), length = strlen(name), path = before + 1 + length + 1;
  size_t head = (sizeof(FTSENT) + length + 1 + 15) & ~(size_t)15;
  FTSENT *p = calloc(1, head + sizeof(struct stat) + path);
  if (!p) return NULL;
  p->fts_statp = (struct stat *)((char *)p + head);
  p->fts_path = (char *)(p->fts_statp + 1);
  if (before && parent[before - 1] == '/') before--;
  memcpy(p->fts_path, parent, before);
  if (*parent) p->fts_path[before++] = '/';
  memcpy(p->fts_path + before, name, length + 1);
  strcpy(p->fts_name, name);
  p->fts_accpath = p->fts_path;
  p->fts_pathlen = (unsigned short)strlen(p->fts_path);
  p->fts_namelen = (unsigned short)strlen(name);
  p->fts_parent = up;
  p->fts_level = level;
  p->fts_instr = FTS_NOINSTR;
  return p;
}

static unsigned short info_of(FTS *f, FTSENT *p, bool follow) {
  struct stat *st = p->fts_statp;
  if (f->fts_options & FTS_LOGICAL || follow) {
    if (my_stat(p->fts_accpath, st) < 0) {
      int error = errno;
      if (my_lstat(p->fts_accpath, st) == 0) {
        errno = 0;
        return FTS_SLNONE;
      }
      p->fts_errno = error;
      memset(st, 0, sizeof *st);
      return FTS_NS;
    }
  } else if (my_lstat(p->fts_accpath, st) < 0) {
    p->fts_errno = errno;
    memset(st, 0, sizeof *st);
    return FTS_NS;
  }
  if (S_ISLNK(st->st_mode)) return FTS_SL;
  if (S_ISREG(st->st_mode)) return FTS_F;
  if (!S_ISDIR(st->st_mode)) return FTS_DEFAULT;
  p->fts_dev = st->st_dev;
  p->fts_ino = st->st_ino;
  p->fts_nlink = st->st_nlink;
  if (dot(p->fts_name)) return FTS_DOT;
  for (FTSENT *up = p->fts_parent; up->fts_level >= FTS_ROOTLEVEL; up = up->fts_parent) {
    if (up->fts_ino != p->fts_ino || up->fts_dev != p->fts_dev) continue;
    p->fts_cycle = up;
    return FTS_DC;
  }
  return FTS_D;
}

static void free_list(FTSENT *p) {
  while (p) {
    FTSENT *next = p->fts_link;
    free(p);
    p = next;
  }
}

static FTSENT *sorted(FTS *f, FTSENT *list, size_t count) {
  FTSENT **array = f->fts_compar && count > 1 ? malloc(count * sizeof *array) : NULL;
  if (!array) return list;
  size_t n = 0;
  for (FTSENT *p = list; p; p = p->fts_link) array[n++] = p;
  qsort(array, n, sizeof *array, f->fts_compar);
  for (size_t i = 0; i < n; i++) array[i]->fts_link = i + 1 < n ? array[i + 1] : NULL;
  list = array[0];
  free(array);
  return list;
}

// children reads the directory that the walk stands at.
static FTSENT *children(FTS *f, bool names_only) {
  FTSENT *at = f->fts_cur, *list = NULL, **end = &list;
  DIR *dir = my_opendir(at->fts_accpath);
  if (!dir) {
    if (!names_only) {
      at->fts_info = FTS_DNR;
      at->fts_errno = errno;
    }
    return NULL;
  }
  size_t count = 0;
  struct dirent *entry;
  while ((entry = my_readdir(dir))) {
    if (dot(entry->d_name) && !(f->fts_options & FTS_SEEDOT)) continue;
    FTSENT *p = entry_of(at->fts_path, entry->d_name, at, (short)(at->fts_level + 1));
    if (!p) {
      free_list(list);
      my_closedir(dir);
      at->fts_info = FTS_ERR;
      f->fts_options |= FTS_STOP;
      errno = ENOMEM;
      return NULL;
    }
    bool told = f->fts_options & FTS_NOSTAT && entry->d_type != DT_UNKNOWN && entry->d_type != DT_DIR &&
                !(f->fts_options & FTS_LOGICAL && entry->d_type == DT_LNK);
    p->fts_info = names_only || told ? FTS_NSOK : info_of(f, p, false);
    *end = p;
    end = &p->fts_link;
    count++;
  }
  my_closedir(dir);
  if (!count && !names_only) at->fts_info = FTS_DP;
  return sorted(f, list, count);
}

INTERPOSE(FTS *, fts_open, (char *const *paths, int options, order_t *order))
FTS *my_fts_open(char *const *paths, int options, order_t *order) {
  if (!active()) return NEXT(fts_open)(paths, options, order);
  if (options & ~FTS_OPTIONMASK) {
    errno = EINVAL;
    return NULL;
  }
  FTS *f = calloc(1, sizeof *f);
  FTSENT *top = f ? entry_of("", "", NULL, FTS_ROOTPARENTLEVEL) : NULL, *list = NULL, **end = &list;
  if (!top) {
    free(f);
    return NULL;
  }
  f->fts_options = options | FTS_NOCHDIR;
  f->fts_compar = (int (*)(const void *, const void *))order;
  f->fts_rfd = -1;
  size_t count = 0;
  for (; *paths; paths++) {
    FTSENT *p = **paths ? entry_of("", *paths, top, FTS_ROOTLEVEL) : NULL;
    if (!p) {
      int error = **paths ? ENOMEM : ENOENT;
      free_list(list);
      free(top);
      free(f);
      errno = error;
      return NULL;
    }
    p->fts_info = info_of(f, p, options & FTS_COMFOLLOW);
    if (p->fts_info == FTS_DOT) p->fts_info = FTS_D;
    *end = p;
    end = &p->fts_link;
    count++;
  }
  f->fts_cur = entry_of("", "", top, FTS_ROOTLEVEL);
  if (!f->fts_cur) {
    free_list(list);
    free(top);
    free(f);
    return NULL;
  }
  f->fts_cur->fts_info = FTS_INIT;
  f->fts_cur->fts_link = sorted(f, list, count);
  return f;
}
ALSO(fts64_open, fts_open)

// arrive makes p the current entry. Until then the name of an entry that the caller gave to fts_open is the whole path.
static FTSENT *arrive(FTS *f, FTSENT *p) {
  char *slash = strrchr(p->fts_name, '/');
  if (slash && (slash != p->fts_name || slash[1])) {
    p->fts_namelen = (unsigned short)strlen(slash + 1);
    memmove(p->fts_name, slash + 1, p->fts_namelen + 1u);
  }
  f->fts_path = p->fts_path;
  f->fts_pathlen = p->fts_pathlen;
  if (p->fts_level == FTS_ROOTLEVEL) f->fts_dev = p->fts_dev;
  return f->fts_cur = p;
}

INTERPOSE(FTSENT *, fts_read, (FTS *f))
FTSENT *my_fts_read(FTS *f) {
  if (!active()) return NEXT(fts_read)(f);
  FTSENT *p = f->fts_cur;
  if (!p || f->fts_options & FTS_STOP) return NULL;
  int asked = p->fts_instr;
  p->fts_instr = FTS_NOINSTR;
  if (asked == FTS_AGAIN || (asked == FTS_FOLLOW && (p->fts_info == FTS_SL || p->fts_info == FTS_SLNONE))) {
    p->fts_info = info_of(f, p, asked == FTS_FOLLOW);
    return p;
  }
  if (p->fts_info == FTS_D) {
    if (asked == FTS_SKIP || (f->fts_options & FTS_XDEV && p->fts_dev != f->fts_dev)) {
      free_list(f->fts_child);
      f->fts_child = NULL;
      p->fts_info = FTS_DP;
      return p;
    }
    if (f->fts_child && f->fts_options & FTS_NAMEONLY) {
      f->fts_options &= ~FTS_NAMEONLY;
      free_list(f->fts_child);
      f->fts_child = NULL;
    }
    FTSENT *child = f->fts_child ? f->fts_child : children(f, false);
    f->fts_child = NULL;
    if (!child) return f->fts_options & FTS_STOP ? NULL : p;
    return arrive(f, child);
  }
  for (;;) {
    FTSENT *done = p;
    if ((p = p->fts_link)) {
      free(done);
      if (p->fts_instr == FTS_SKIP) continue;
      if (p->fts_instr == FTS_FOLLOW) {
        p->fts_info = info_of(f, p, true);
        p->fts_instr = FTS_NOINSTR;
      }
      return arrive(f, p);
    }
    p = done->fts_parent;
    free(done);
    if (p->fts_level == FTS_ROOTPARENTLEVEL) {
      free(p);
      f->fts_cur = NULL;
      errno = 0;
      return NULL;
    }
    p->fts_info = p->fts_errno ? FTS_ERR : FTS_DP;
    return arrive(f, p);
  }
}
ALSO(fts64_read, fts_read)

INTERPOSE(FTSENT *, fts_children, (FTS *f, int asked))
FTSENT *my_fts_children(FTS *f, int asked) {
  if (!active()) return NEXT(fts_children)(f, asked);
  FTSENT *p = f->fts_cur;
  if (asked && asked != FTS_NAMEONLY) {
    errno = EINVAL;
    return NULL;
  }
  errno = 0;
  if (!p || f->fts_options & FTS_STOP) return NULL;
  if (p->fts_info == FTS_INIT) return p->fts_link;
  if (p->fts_info != FTS_D) return NULL;
  free_list(f->fts_child);
  if (asked) f->fts_options |= FTS_NAMEONLY;
  return f->fts_child = children(f, asked);
}
ALSO(fts64_children, fts_children)

INTERPOSE(int, fts_set, (FTS *f, FTSENT *p, int asked))
int my_fts_set(FTS *f, FTSENT *p, int asked) {
  if (!active()) return NEXT(fts_set)(f, p, asked);
  if (asked && asked != FTS_AGAIN && asked != FTS_FOLLOW && asked != FTS_NOINSTR && asked != FTS_SKIP) {
    errno = EINVAL;
    return -1;
  }
  p->fts_instr = (unsigned short)asked;
  return 0;
}
ALSO(fts64_set, fts_set)

INTERPOSE(int, fts_close, (FTS *f))
int my_fts_close(FTS *f) {
  if (!active()) return NEXT(fts_close)(f);
  free_list(f->fts_child);
  for (FTSENT *p = f->fts_cur; p;) {
    FTSENT *up = p->fts_link ? p->fts_link : p->fts_parent;
    free(p);
    p = up;
  }
  free(f);
  return 0;
}
ALSO(fts64_close, fts_close)

#endif
