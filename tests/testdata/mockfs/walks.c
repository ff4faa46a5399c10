// walks DIRECTORY prints all that nftw, ftw, fts, glob, wordexp, scandir and realpath have to say about it, so that what
// libc says can be compared with what the library says.

#define _GNU_SOURCE
#include <dirent.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wordexp.h>

static int action;  // what the visitor answers at a directory called "deep"

static int visit(const char *path, const struct stat *st, int type, struct FTW *at) {
  char cwd[PATH_MAX];
  printf("nftw %s type %d base %d level %d mode %o in %s\n", path, type, at->base, at->level,
         type == FTW_NS ? 0 : st->st_mode & S_IFMT, getcwd(cwd, sizeof cwd));
  return type == FTW_D && !strcmp(path + at->base, "deep") ? action : 0;
}

static int old_visit(const char *path, const struct stat *st, int type) {
  printf("ftw %s type %d mode %o\n", path, type, type == FTW_NS ? 0 : st->st_mode & S_IFMT);
  return 0;
}

static int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }

static void tour(char **paths, int options, int instruction) {
  FTS *f = fts_open(paths, options | FTS_NOCHDIR, by_name);
  printf("fts options %x instruction %d: %s\n", options, instruction, f ? "" : "failed");
  if (!f) return;
  for (FTSENT *c = fts_children(f, 0); c; c = c->fts_link) printf("argument %s\n", c->fts_name);
  for (FTSENT *e; (e = fts_read(f));) {
    struct stat st;  // libc may leave a slash at the end of the path
    printf("fts %.*s name %s level %d info %d errno %d name length %d access %d cycle %s\n", e->fts_pathlen, e->fts_path, e->fts_name,
           e->fts_level, e->fts_info, e->fts_errno, e->fts_namelen, lstat(e->fts_accpath, &st),
           e->fts_info == FTS_DC ? e->fts_cycle->fts_name : "-");
    if (e->fts_info == FTS_D && !strcmp(e->fts_name, "deep")) {
      for (FTSENT *c = fts_children(f, FTS_NAMEONLY); c; c = c->fts_link) printf("child %s\n", c->fts_name);
      fts_set(f, e, instruction == FTS_AGAIN && e->fts_number++ ? 0 : instruction);
    }
    if (e->fts_info == FTS_SL && instruction == FTS_FOLLOW) fts_set(f, e, FTS_FOLLOW);
  }
  printf("fts_close %d\n", fts_close(f));
}

static void globs(const char *pattern, int flags) {
  glob_t found = {.gl_offs = 2};
  int result = glob(pattern, flags, NULL, &found);
  printf("glob %s flags %x: %d, %zu\n", pattern, flags, result, found.gl_pathc);
  if (result == 0) {
    for (size_t i = 0; i < found.gl_pathc; i++) puts(found.gl_pathv[i + (flags & GLOB_DOOFFS ? 2 : 0)]);
    globfree(&found);
  }
}

static void words(const char *text, int flags) {
  wordexp_t w = {.we_offs = 1};
  int result = wordexp("first 'one word'", &w, flags & WRDE_DOOFFS);
  if (flags & WRDE_APPEND) result = wordexp(text, &w, flags);
  else wordfree(&w), w.we_offs = 1, result = wordexp(text, &w, flags);
  printf("wordexp %s flags %x: %d\n", text, flags, result);
  if (result == 0) {
    for (size_t i = 0; i < w.we_wordc; i++) puts(w.we_wordv[i + (flags & WRDE_DOOFFS ? 1 : 0)]);
    wordfree(&w);
  }
}

int main(int argc, char **argv) {
  if (argc != 2 || chdir(argv[1])) return 2;
  char absolute[PATH_MAX];
  if (!getcwd(absolute, sizeof absolute)) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  const char *starts[] = {".", "tree", "tree/", absolute, "tree/link", "tree/dangling", "tree/file", "missing", ""};
  for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
    const char *start = starts[i];
    for (int flags = 0; flags < 16; flags++)  // PHYS, MOUNT, CHDIR, DEPTH
      printf("nftw(%s, %x) = %d\n", start, flags, nftw(start, visit, 4, flags));
    for (action = 0; action < 4; action++)
      printf("nftw(%s, action %d) = %d\n", start, action, nftw(start, visit, 4, FTW_PHYS | FTW_ACTIONRETVAL));
    action = 7;
    printf("nftw(%s, stop) = %d\n", start, nftw(start, visit, 4, FTW_PHYS));
    action = 0;
    printf("ftw(%s) = %d\n", start, ftw(start, old_visit, 4));
    char *paths[] = {(char *)start, "tree/deep", NULL}, real[PATH_MAX];
    for (int options = FTS_LOGICAL; options <= FTS_PHYSICAL; options += FTS_PHYSICAL - FTS_LOGICAL)
      for (int instruction = 0; instruction <= FTS_SKIP; instruction++)
        for (int more = 0; more < 4; more++)
          tour(paths, options | (more & 1 ? FTS_COMFOLLOW : 0) | (more & 2 ? FTS_SEEDOT : 0), instruction);
    printf("realpath(%s) = %s\n", start, realpath(start, real) ? real : "NULL");
  }
  const char *patterns[] = {"*", "tree/*", "*/*", "tr*/.*", "tree/d*/", "tree/{file,deep/*}", "tree/none*", "tree/[", "tree/\\*", "~root", "t?ee"};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
    for (int flags = 0; flags < 6; flags++)
      globs(patterns[i], (int[]){0, GLOB_MARK, GLOB_NOCHECK, GLOB_BRACE | GLOB_TILDE, GLOB_DOOFFS, GLOB_PERIOD | GLOB_ONLYDIR}[flags]);
  const char *texts[] = {"*", "tree/* 'tree/*' \"tree/*\" tree/\\*", "tree/none* a?b", "$HOME/none* ~/none*", "$((2*3)) x*", "$(echo 'a*b') t*e",
                         "${HOME:+*} t*", "a | *", "'open", "tree/[df]* ''", "`echo 'x*'` t*"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    for (int flags = 0; flags < 4; flags++) words(texts[i], (int[]){0, WRDE_NOCMD, WRDE_DOOFFS, WRDE_DOOFFS | WRDE_APPEND}[flags]);
  struct dirent **names;
  int n = scandir("tree", &names, NULL, alphasort);
  for (int i = 0; i < n; i++) puts(names[i]->d_name);
  return 0;
}
