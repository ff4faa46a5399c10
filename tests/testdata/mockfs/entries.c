// entries DIRECTORY BUS calls every entry point that takes a path, with BUS as the way to spell /sys/bus/pci. DIRECTORY
// is "-", or a directory from whose descriptor the relative BUS starts; then only the functions that take one are
// called. GPU is the staged device, HOST a name that only the host has below devices, or empty. Failures are printed.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>
#include <wordexp.h>

#include "check.h"


static int dir = AT_FDCWD;
static const char *gpu, *host;
static char devices[PATH_MAX], device[PATH_MAX], vendor[PATH_MAX], missing[PATH_MAX], nowhere[PATH_MAX];

static const char pair[] = "0x10de\n";

static bool is_vendor(int fd) {
  char text[16] = "";
  bool same = fd >= 0 && read(fd, text, sizeof text) == (ssize_t)strlen(pair) && !strcmp(text, pair);
  if (fd >= 0) close(fd);
  return same;
}

static bool is_vendor_stream(FILE *file) {
  char text[16] = "";
  bool same = file && fgets(text, sizeof text, file) && !strcmp(text, pair);
  if (file) fclose(file);
  return same;
}

static bool is_regular(int result, const struct stat *st) { return result == 0 && S_ISREG(st->st_mode); }
static bool is_link(int result, const struct stat *st) { return result == 0 && S_ISLNK(st->st_mode); }

// not_missing is for calls that may be refused by the file system, but not for want of a file.
static bool not_missing(long result) { return result >= 0 || (errno != ENOENT && errno != ENOTDIR); }

static bool fails(long result, int error) { return result < 0 && errno == error; }

// ---- Directories: the GPU once, the host's device once -------------------------------------------------------------

static int gpus, hosts;

static void count(const char *name) {
  const char *base = strrchr(name, '/');
  base = base ? base + 1 : name;
  gpus += !strcmp(base, gpu);
  hosts += *host && !strcmp(base, host);
}

static bool counted(void) {
  bool right = gpus == 1 && hosts == (*host ? 1 : 0);
  gpus = hosts = 0;
  return right;
}

static bool lists(DIR *d) {
  if (!d) return false;
  for (struct dirent *e; (e = readdir(d));) count(e->d_name);
  bool right = counted();
  rewinddir(d);
  long start = telldir(d);
  struct dirent *first = readdir(d);
  char name[256];
  if (!first) return false;
  strcpy(name, first->d_name);
  while (readdir(d)) {
  }
  seekdir(d, start);
  first = readdir(d);
  right &= first && !strcmp(first->d_name, name);
  rewinddir(d);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  union {
    struct dirent entry;
    char room[512];
  } u;
  for (struct dirent *e; readdir_r(d, &u.entry, &e) == 0 && e;) count(e->d_name);
#pragma GCC diagnostic pop
  right &= counted();
  return closedir(d) == 0 && right;
}

static bool lists_raw(int fd, ssize_t (*next)(int, void *, size_t)) {
  char buffer[1024];  // small, so that it takes several calls
  ssize_t n;
  while ((n = next(fd, buffer, sizeof buffer)) > 0)
    for (ssize_t i = 0; i < n; i += ((struct dirent64 *)(buffer + i))->d_reclen) count(((struct dirent64 *)(buffer + i))->d_name);
  close(fd);
  return counted() && n == 0;
}

static ssize_t raw_getdents(int fd, void *buffer, size_t size) { return syscall(SYS_getdents64, fd, buffer, size); }

static bool lists_names(int n, struct dirent ***list) {
  struct dirent **names = *list;
  for (int i = 0; i < n; i++) {
    count(names[i]->d_name);
    if (i && strcmp(names[i - 1]->d_name, names[i]->d_name) >= 0) gpus = 99;
    free(names[i]);
  }
  if (n > 0) free(names);
  return counted();
}

static int filter(const struct dirent *e) { return e->d_name[0] != '.'; }

static bool globs(int result, glob_t *found) {
  if (result == 0)
    for (size_t i = 0; i < found->gl_pathc; i++) count(found->gl_pathv[i]);
  bool right = counted() && !(found->gl_flags & GLOB_ALTDIRFUNC);
  if (result == 0) globfree(found);
  return right;
}

static int visit_link(const char *path, const struct stat *st, int type, struct FTW *at) {
  (void)st, (void)at;
  if (type == FTW_SL) count(path);
  return 0;
}

// below_device ends the walk, which would follow the device's links to the rest of /sys.
static int below_device(const char *path, const struct stat *st, int type) {
  (void)st;
  return (type == FTW_F || type == FTW_D) && strlen(path) > strlen(device) && !strncmp(path, device, strlen(device)) ? 42 : 0;
}

static int visit_here(const char *path, const struct stat *st, int type, struct FTW *at) {
  struct stat here;
  if (type == FTW_SL && (lstat(path + at->base, &here) < 0 || here.st_ino != st->st_ino)) return 1;
  return visit_link(path, st, type, at);
}

static bool walks(void) {
  char *paths[] = {devices, NULL};
  FTS *f = fts_open(paths, FTS_PHYSICAL, NULL);
  if (!f) return false;
  for (FTSENT *e; (e = fts_read(f));)
    if (e->fts_info == FTS_SL) count(e->fts_name);
  return fts_close(f) == 0 && counted();
}

// ---- Families ------------------------------------------------------------------------------------------------------

extern int __open_2(const char *, int), __open64_2(const char *, int);
extern int __openat_2(int, const char *, int), __openat64_2(int, const char *, int);
extern ssize_t __readlink_chk(const char *, char *, size_t, size_t);
extern ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t);
extern char *__realpath_chk(const char *, char *, size_t);

static bool leads_to_gpu(ssize_t n, char *buffer) {
  if (n <= 0) return false;
  buffer[n] = '\0';
  const char *base = strrchr(buffer, '/');
  return base && !strncmp(buffer, "../../../devices/pci", 20) && !strcmp(base + 1, gpu);
}

static void with_directory(void) {
  struct stat st;
  struct stat64 st64;
  struct statx stx;
  char buffer[PATH_MAX];
  struct dirent **names;
  int flags = O_RDONLY;

  CHECK(is_vendor(openat(dir, vendor, flags)));
  CHECK(is_vendor(openat64(dir, vendor, flags)));
  CHECK(is_vendor(__openat_2(dir, vendor, flags)));
  CHECK(is_vendor(__openat64_2(dir, vendor, flags)));
  CHECK(is_regular(fstatat(dir, vendor, &st, 0), &st));
  CHECK(is_link(fstatat(dir, device, &st, AT_SYMLINK_NOFOLLOW), &st));
  CHECK(fstatat64(dir, vendor, &st64, 0) == 0 && S_ISREG(st64.st_mode));
  CHECK(statx(dir, vendor, 0, STATX_TYPE, &stx) == 0 && S_ISREG(stx.stx_mode));
  CHECK(statx(dir, device, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &stx) == 0 && S_ISLNK(stx.stx_mode));
  CHECK(faccessat(dir, vendor, R_OK, 0) == 0);
  CHECK(faccessat(dir, vendor, R_OK, AT_EACCESS) == 0);
  CHECK(fails(faccessat(dir, missing, R_OK, 0), ENOENT));
  CHECK(leads_to_gpu(readlinkat(dir, device, buffer, sizeof buffer - 1), buffer));
  CHECK(leads_to_gpu(__readlinkat_chk(dir, device, buffer, sizeof buffer - 1, sizeof buffer), buffer));
  CHECK(utimensat(dir, vendor, NULL, 0) == 0);
  CHECK(fchmodat(dir, vendor, 0644, 0) == 0);
  CHECK(fchownat(dir, vendor, (uid_t)-1, (gid_t)-1, 0) == 0);
  CHECK(lists_names(scandirat(dir, devices, &names, filter, alphasort), &names));
  CHECK(lists_names(scandirat64(dir, devices, (struct dirent64 ***)&names, NULL, alphasort64), &names));
  CHECK(lists(fdopendir(openat(dir, devices, O_RDONLY | O_DIRECTORY))));
  CHECK(lists_raw(openat(dir, devices, O_RDONLY | O_DIRECTORY), getdents64));
  CHECK(lists_raw(openat(dir, devices, O_RDONLY | O_DIRECTORY), raw_getdents));
  union {
    struct file_handle handle;
    char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
  } u = {.handle.handle_bytes = MAX_HANDLE_SZ};
  int mount;
  CHECK(not_missing(name_to_handle_at(dir, vendor, &u.handle, &mount, 0)));

  CHECK(is_vendor((int)syscall(SYS_openat, dir, vendor, O_RDONLY)));
  CHECK(is_regular((int)syscall(SYS_newfstatat, dir, vendor, &st, 0), &st));
  CHECK(syscall(SYS_statx, dir, vendor, 0, STATX_TYPE, &stx) == 0 && S_ISREG(stx.stx_mode));
  CHECK(syscall(SYS_faccessat, dir, vendor, R_OK) == 0);
  CHECK(syscall(SYS_faccessat2, dir, vendor, R_OK, 0) == 0 || errno == ENOSYS);
  CHECK(leads_to_gpu(syscall(SYS_readlinkat, dir, device, buffer, sizeof buffer - 1), buffer));
  struct open_how how = {.flags = O_RDONLY};
  CHECK(is_vendor((int)syscall(SYS_openat2, dir, vendor, &how, sizeof how)) || errno == ENOSYS);

  // sysfs lets nobody make or remove names.
  CHECK(fails(mkdirat(dir, missing, 0755), EPERM));
  CHECK(fails(mkdirat(dir, device, 0755), EEXIST));
  CHECK(fails(mkdirat(dir, nowhere, 0755), ENOENT));
  CHECK(fails(mkfifoat(dir, missing, 0644), EPERM));
  CHECK(fails(mknodat(dir, missing, S_IFREG | 0644, 0), EPERM));
  CHECK(fails(symlinkat("x", dir, missing), EPERM));
  CHECK(fails(unlinkat(dir, vendor, 0), EPERM));
  CHECK(fails(unlinkat(dir, missing, 0), ENOENT));
  CHECK(fails(renameat(dir, vendor, dir, missing), EPERM));
  CHECK(fails(renameat2(dir, vendor, dir, missing, 0), EPERM));
  CHECK(fails(linkat(dir, vendor, dir, missing, 0), EPERM));
  CHECK(fails(openat(dir, missing, O_WRONLY | O_CREAT, 0644), EACCES));
  CHECK(fails(openat(dir, vendor, O_WRONLY | O_CREAT | O_EXCL, 0644), EEXIST));
}

static bool spawns(int with_chdir) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  int ends[2];
  if (pipe(ends)) return false;
  if (with_chdir) posix_spawn_file_actions_addchdir_np(&actions, device);
  if (posix_spawn_file_actions_addopen(&actions, 0, with_chdir ? "vendor" : vendor, O_RDONLY, 0)) return false;
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  pid_t pid;
  char *arguments[] = {"cat", NULL}, *environment[] = {"PATH=/usr/bin:/bin", NULL};
  int error = posix_spawnp(&pid, "cat", &actions, NULL, arguments, environment);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  return is_vendor(ends[0]) && !error && waitpid(pid, NULL, 0) == pid;
}

static bool is_sysfs(const struct statfs *st) { return st->f_type == SYSFS_MAGIC || !*host; }

static void with_path(void) {
  struct stat st;
  struct stat64 st64;
  struct statfs fs;
  struct statfs64 fs64;
  struct statvfs vfs;
  struct statvfs64 vfs64;
  char buffer[PATH_MAX], pattern[PATH_MAX + 4];
  struct dirent **names;
  glob_t found = {0};
  int flags = O_RDONLY;

  CHECK(is_vendor(open(vendor, flags)));
  CHECK(is_vendor(open64(vendor, flags)));
  CHECK(is_vendor(__open_2(vendor, flags)));
  CHECK(is_vendor(__open64_2(vendor, flags)));
  CHECK(fails(creat(missing, 0644), EACCES));
  CHECK(fails(creat64(missing, 0644), EACCES));
  CHECK(is_vendor_stream(fopen(vendor, "r")));
  CHECK(is_vendor_stream(fopen64(vendor, "r")));
  CHECK(!fopen(missing, "w") && errno == EACCES);
  CHECK(is_vendor_stream(freopen(vendor, "r", fopen("/dev/null", "r"))));
  CHECK(is_vendor_stream(freopen64(vendor, "r", fopen("/dev/null", "r"))));

  CHECK(is_regular(stat(vendor, &st), &st));
  CHECK(is_link(lstat(device, &st), &st));
  CHECK(stat64(vendor, &st64) == 0 && S_ISREG(st64.st_mode));
  CHECK(lstat64(device, &st64) == 0 && S_ISLNK(st64.st_mode));
  for (const char *const *name = (const char *const[]){"__xstat", "__xstat64", "__lxstat", "__lxstat64", NULL}; *name; name++) {
    int (*old)(int, const char *, struct stat *) = (int (*)(int, const char *, struct stat *))dlsym(RTLD_DEFAULT, *name);
    CHECK(old && is_regular(old(1, vendor, &st), &st));
    CHECK(old && fails(old(9, vendor, &st), EINVAL));
  }
  for (const char *const *name = (const char *const[]){"__fxstatat", "__fxstatat64", NULL}; *name; name++) {
    int (*old)(int, int, const char *, struct stat *, int) =
        (int (*)(int, int, const char *, struct stat *, int))dlsym(RTLD_DEFAULT, *name);
    CHECK(old && is_regular(old(1, AT_FDCWD, vendor, &st, 0), &st));
  }
  CHECK(fails(stat(missing, &st), ENOENT));
  char slash[PATH_MAX + 4];
  snprintf(slash, sizeof slash, "%s/", vendor);
  CHECK(fails(stat(slash, &st), ENOTDIR));
  snprintf(slash, sizeof slash, "%s/..", vendor);
  CHECK(fails(stat(slash, &st), ENOTDIR));
  snprintf(slash, sizeof slash, "%s/", device);
  CHECK(lstat(slash, &st) == 0 && S_ISDIR(st.st_mode));
  CHECK(access(vendor, R_OK) == 0);
  CHECK(eaccess(vendor, R_OK) == 0);
  CHECK(euidaccess(vendor, R_OK) == 0);

  CHECK(leads_to_gpu(readlink(device, buffer, sizeof buffer - 1), buffer));
  CHECK(leads_to_gpu(__readlink_chk(device, buffer, sizeof buffer - 1, sizeof buffer), buffer));
  char real[PATH_MAX];
  CHECK(realpath(device, real) && !strncmp(real, "/sys/devices/pci", 16) && !strcmp(strrchr(real, '/') + 1, gpu));
  CHECK(__realpath_chk(device, buffer, sizeof buffer) && !strcmp(buffer, real));
  char *resolved = canonicalize_file_name(device);
  CHECK(resolved && !strcmp(resolved, real));
  free(resolved);
  CHECK(!realpath(missing, buffer) && errno == ENOENT);

  CHECK(lists(opendir(devices)));
  CHECK(!opendir(vendor) && errno == ENOTDIR);
  CHECK(lists_names(scandir(devices, &names, filter, alphasort), &names));
  CHECK(lists_names(scandir64(devices, (struct dirent64 ***)&names, NULL, alphasort64), &names));
  snprintf(pattern, sizeof pattern, "%s/*", devices);
  CHECK(globs(glob(pattern, 0, NULL, &found), &found));
  CHECK(globs(glob64(pattern, 0, NULL, (glob64_t *)&found), &found));
  wordexp_t words;
  CHECK(wordexp(pattern, &words, 0) == 0);
  for (size_t i = 0; i < words.we_wordc; i++) count(words.we_wordv[i]);
  CHECK(counted());
  wordfree(&words);
  snprintf(pattern, sizeof pattern, "'%.4000s/*' \"a b\"? $((1+1))", devices);
  CHECK(wordexp(pattern, &words, 0) == 0 && words.we_wordc == 3 && strstr(words.we_wordv[0], "/*") &&
        !strcmp(words.we_wordv[1], "a b?") && !strcmp(words.we_wordv[2], "2"));
  wordfree(&words);
  CHECK(nftw(devices, visit_link, 8, FTW_PHYS) == 0);
  CHECK(counted());
  CHECK(nftw64(devices, (int (*)(const char *, const struct stat64 *, int, struct FTW *))visit_link, 8, FTW_PHYS) == 0);
  CHECK(counted());
  char before[PATH_MAX];
  CHECK(getcwd(before, sizeof before));
  CHECK(nftw(devices, visit_here, 8, FTW_PHYS | FTW_CHDIR | FTW_DEPTH) == 0);
  CHECK(counted());
  CHECK(getcwd(buffer, sizeof buffer) && !strcmp(buffer, before));
  CHECK(ftw(device, below_device, 8) == 42);
  CHECK(ftw64(device, (int (*)(const char *, const struct stat64 *, int))below_device, 8) == 42);
  CHECK(walks());

  CHECK(not_missing(getxattr(vendor, "user.x", buffer, sizeof buffer)));
  CHECK(not_missing(lgetxattr(vendor, "user.x", buffer, sizeof buffer)));
  CHECK(not_missing(listxattr(vendor, buffer, sizeof buffer)));
  CHECK(not_missing(llistxattr(vendor, buffer, sizeof buffer)));
  CHECK(not_missing(setxattr(vendor, "user.x", "", 0, XATTR_REPLACE)));
  CHECK(not_missing(lsetxattr(vendor, "user.x", "", 0, XATTR_REPLACE)));
  CHECK(not_missing(removexattr(vendor, "user.x")));
  CHECK(not_missing(lremovexattr(vendor, "user.x")));
  CHECK(statfs(vendor, &fs) == 0 && is_sysfs(&fs));
  CHECK(statfs64(vendor, &fs64) == 0);
  CHECK(statvfs(vendor, &vfs) == 0);
  CHECK(statvfs64(vendor, &vfs64) == 0);
  int fd = open(vendor, O_RDONLY);
  CHECK(fstatfs(fd, &fs) == 0 && is_sysfs(&fs));
  CHECK(fstatvfs(fd, &vfs) == 0);
  snprintf(slash, sizeof slash, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(slash, buffer, sizeof buffer - 1);
  CHECK(n > 0 && (size_t)n == strlen(real) + 7 && !strncmp(buffer, real, strlen(real)));
  CHECK(is_vendor(open(slash, O_RDONLY)));
  close(fd);
  CHECK(pathconf(vendor, _PC_NAME_MAX) > 0);
  CHECK(utime(vendor, NULL) == 0);
  CHECK(utimes(vendor, NULL) == 0);
  CHECK(lutimes(vendor, NULL) == 0);
  CHECK(chmod(vendor, 0644) == 0);
  CHECK(chown(vendor, (uid_t)-1, (gid_t)-1) == 0);
  CHECK(lchown(vendor, (uid_t)-1, (gid_t)-1) == 0);
  CHECK(truncate(vendor, (off_t)strlen(pair)) == 0);
  int watcher = inotify_init1(0);
  CHECK(inotify_add_watch(watcher, vendor, IN_OPEN) > 0);
  close(watcher);
  CHECK(spawns(0));
  CHECK(spawns(1));

  CHECK(chdir(devices) == 0);
  CHECK(getcwd(buffer, sizeof buffer) && !strcmp(buffer, "/sys/bus/pci/devices"));
  resolved = get_current_dir_name();
  CHECK(resolved && !strcmp(resolved, "/sys/bus/pci/devices"));
  free(resolved);
  CHECK(syscall(SYS_getcwd, buffer, sizeof buffer) == 21 && !strcmp(buffer, "/sys/bus/pci/devices"));
  snprintf(slash, sizeof slash, "%s/vendor", gpu);
  CHECK(is_vendor(open(slash, O_RDONLY)));
  snprintf(slash, sizeof slash, "../../pci/devices/%s/vendor", gpu);
  CHECK(is_vendor(open(slash, O_RDONLY)));
  CHECK(!*host || stat(host, &st) == 0);
  CHECK(lists(opendir(".")));
  fd = open(before, O_PATH);
  CHECK(fchdir(fd) == 0);
  close(fd);
  CHECK(getcwd(buffer, sizeof buffer) && !strcmp(buffer, before));

#ifdef SYS_open
  CHECK(is_vendor((int)syscall(SYS_open, vendor, O_RDONLY)));
  CHECK(is_regular((int)syscall(SYS_stat, vendor, &st), &st));
  CHECK(is_link((int)syscall(SYS_lstat, device, &st), &st));
  CHECK(syscall(SYS_access, vendor, R_OK) == 0);
  CHECK(leads_to_gpu(syscall(SYS_readlink, device, buffer, sizeof buffer - 1), buffer));
#endif
  CHECK(fails(mkdir(missing, 0755), EPERM));
  CHECK(fails(mkfifo(missing, 0644), EPERM));
  CHECK(fails(mknod(missing, S_IFREG | 0644, 0), EPERM));
  CHECK(fails(symlink("x", missing), EPERM));
  CHECK(fails(unlink(vendor), EPERM));
  CHECK(fails(rmdir(device), EPERM));
  CHECK(fails(remove(vendor), EPERM));
  CHECK(fails(rename(vendor, missing), EPERM));
  CHECK(fails(rename("/dev/null", missing), EPERM));
  CHECK(fails(link(vendor, missing), EPERM));
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  const char *bus = argv[2];
  gpu = argv[3];
  host = argv[4];
  snprintf(devices, sizeof devices, "%s/devices", bus);
  snprintf(device, sizeof device, "%s/devices/%s", bus, gpu);
  snprintf(vendor, sizeof vendor, "%s/devices/%s/vendor", bus, gpu);
  snprintf(missing, sizeof missing, "%s/devices/%s/missing", bus, gpu);
  snprintf(nowhere, sizeof nowhere, "%s/devices/%s/missing/missing", bus, gpu);
  if (strcmp(argv[1], "-")) {
    dir = open(argv[1], O_PATH | O_DIRECTORY);
    with_directory();
    close(dir);
    dir = open(argv[1], O_RDONLY | O_DIRECTORY);
    with_directory();
  } else {
    with_directory();
    with_path();
  }
  return check_failures != 0;
}
