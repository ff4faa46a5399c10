// scandir, glob and wordexp. Libc's own read directories by internal functions that a preloaded library does not see. The glob of
// musl takes no functions of others to read them, so there it and wordexp find the files of the host.

#include "engine.h"

#include <glob.h>
#include <stdlib.h>
#include <wordexp.h>

// ---- scandir -------------------------------------------------------------------------------------------------------

typedef int filter_t(const struct dirent *);
typedef int order_t(const struct dirent **, const struct dirent **);

static int read_names(int fd, struct dirent ***names, filter_t *filter, order_t *order) {
  DIR *dir = fd < 0 ? NULL : my_fdopendir(fd);
  if (!dir) return -1;
  int kept = errno, count = 0, room = 0;
  struct dirent **list = NULL, *entry;
  for (errno = 0; (entry = my_readdir(dir)); errno = 0) {
    if (filter && !filter(entry)) continue;
    if (count == room) {
      struct dirent **more = realloc(list, sizeof *list * (size_t)(room = room ? 2 * room : 32));
      if (!more) break;
      list = more;
    }
    if (!(list[count] = malloc(entry->d_reclen))) break;
    memcpy(list[count++], entry, entry->d_reclen);
  }
  int error = errno;
  my_closedir(dir);
  if (error) {
    while (count) free(list[--count]);
    free(list);
    errno = error;
    return -1;
  }
  if (order && count) qsort(list, (size_t)count, sizeof *list, (int (*)(const void *, const void *))order);
  *names = list;
  errno = kept;
  return count;
}

enum { READ_NAMES = O_RDONLY | O_NONBLOCK | O_DIRECTORY | O_CLOEXEC };

INTERPOSE(int, scandir, (const char *path, struct dirent ***names, filter_t *filter, order_t *order))
int my_scandir(const char *path, struct dirent ***names, filter_t *filter, order_t *order) {
  if (!active()) return NEXT(scandir)(path, names, filter, order);
  return read_names(my_open(path, READ_NAMES, 0), names, filter, order);
}
ALSO(scandir64, scandir)

INTERPOSE(int, scandirat, (int dirfd, const char *path, struct dirent ***names, filter_t *filter, order_t *order))
int my_scandirat(int dirfd, const char *path, struct dirent ***names, filter_t *filter, order_t *order) {
  if (!active()) return NEXT(scandirat)(dirfd, path, names, filter, order);
  return read_names(my_openat(dirfd, path, READ_NAMES, 0), names, filter, order);
}
ALSO(scandirat64, scandirat)

#ifdef __GLIBC__

// ---- glob: libc's, with our functions to read directories ----------------------------------------------------------

typedef int report_t(const char *path, int error);

static void glob_closedir(void *dir) { my_closedir(dir); }
static struct dirent *glob_readdir(void *dir) { return my_readdir(dir); }
static void *glob_opendir(const char *path) { return my_opendir(path); }

INTERPOSE(int, glob, (const char *pattern, int flags, report_t *report, glob_t *found))
int my_glob(const char *pattern, int flags, report_t *report, glob_t *found) {
  if (!active() || flags & GLOB_ALTDIRFUNC) return NEXT(glob)(pattern, flags, report, found);
  found->gl_closedir = glob_closedir;
  found->gl_readdir = glob_readdir;
  found->gl_opendir = glob_opendir;
  found->gl_stat = my_stat;
  found->gl_lstat = my_lstat;
  int result = NEXT(glob)(pattern, flags | GLOB_ALTDIRFUNC, report, found);
  found->gl_flags &= ~GLOB_ALTDIRFUNC;
  return result;
}
ALSO(glob64, glob)

// ---- wordexp -------------------------------------------------------------------------------------------------------
// Libc expands the words with their unquoted pattern characters disguised, so that it does everything but look for files.
// Then our glob looks for files. If the value of a variable brings in a pattern character, libc looks for the files itself,
// and finds those of the host.

static const char pattern_characters[] = "*?[";
enum { DISGUISE = 1 };  // '*' becomes \1, '?' \2, '[' \3

// disguise returns a copy of words, or NULL if there is nothing to disguise.
static char *disguise(const char *words) {
  char *copy = strdup(words);
  bool single = false, quoted = false, any = false;
  int depth = 0;  // of $( and ${, whose contents are left alone
  bool tick = false;
  for (char *c = copy; c && *c; c++) {
    if (*c == '\\' && !single && c[1])
      c++;
    else if (*c == '\'' && !quoted && !depth && !tick)
      single = !single;
    else if (single)
      continue;
    else if (*c == '"' && !depth && !tick)
      quoted = !quoted;
    else if (*c == '`')
      tick = !tick;
    else if (*c == '$' && (c[1] == '(' || c[1] == '{'))
      depth++, c++;
    else if (depth && (*c == '(' || *c == '{'))
      depth++;
    else if (depth && (*c == ')' || *c == '}'))
      depth--;
    else if (!quoted && !depth && !tick && strchr(pattern_characters, *c))
      *c = (char)(DISGUISE + (strchr(pattern_characters, *c) - pattern_characters)), any = true;
  }
  if (any) return copy;
  free(copy);
  return NULL;
}

static bool disguised(char c) { return c >= DISGUISE && c < DISGUISE + (int)sizeof pattern_characters - 1; }

// uncover puts the disguised characters back. In a pattern it quotes the others of their kind, which are meant as they are.
static void uncover(char *to, const char *word, bool as_pattern) {
  for (; *word; word++) {
    if (disguised(*word)) {
      *to++ = pattern_characters[*word - DISGUISE];
      continue;
    }
    if (as_pattern && strchr("*?[\\", *word)) *to++ = '\\';
    *to++ = *word;
  }
  *to = '\0';
}

// add appends a word after the entries that the caller reserved by we_offs. The word then belongs to the list.
static bool add(wordexp_t *to, char *word) {
  size_t end = to->we_offs + to->we_wordc;
  char **more = word ? realloc(to->we_wordv, sizeof *more * (end + 2)) : NULL;
  if (!more) {
    free(word);
    return false;
  }
  if (!to->we_wordv) memset(more, 0, sizeof *more * to->we_offs);
  to->we_wordv = more;
  more[end] = word;
  more[end + 1] = NULL;
  to->we_wordc++;
  return true;
}

// expand_word adds what a word stands for: the files that match it, or the word itself.
static bool expand_word(wordexp_t *to, const char *word) {
  char *text = malloc(2 * strlen(word) + 1);
  if (!text) return false;
  glob_t found = {0};
  bool pattern = false, ok = true;
  for (const char *c = word; *c; c++) pattern |= disguised(*c);
  uncover(text, word, true);
  if (pattern && my_glob(text, 0, NULL, &found) == 0) {
    free(text);
    for (size_t i = 0; ok && i < found.gl_pathc; i++) ok = add(to, strdup(found.gl_pathv[i]));
    globfree(&found);
    return ok;
  }
  uncover(text, word, false);
  return add(to, text);
}

INTERPOSE(int, wordexp, (const char *words, wordexp_t *result, int flags))
int my_wordexp(const char *words, wordexp_t *result, int flags) {
  char *hidden = active() && words ? disguise(words) : NULL;
  if (!hidden) return NEXT(wordexp)(words, result, flags);
  wordexp_t plain, to = {0};
  int error = NEXT(wordexp)(hidden, &plain, flags & ~(WRDE_APPEND | WRDE_REUSE | WRDE_DOOFFS));
  free(hidden);
  if (error) return error;
  if (flags & WRDE_REUSE) wordfree(result);
  if (flags & WRDE_APPEND) to = *result;
  to.we_offs = flags & WRDE_DOOFFS ? result->we_offs : 0;
  for (size_t i = 0; i < plain.we_wordc && !error; i++)
    if (!expand_word(&to, plain.we_wordv[i])) error = WRDE_NOSPACE;
  wordfree(&plain);
  *result = to;
  return error;
}

#endif
