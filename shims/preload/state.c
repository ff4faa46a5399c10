// What is fixed when the library is loaded.

#include "engine.h"
#include "kernel.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/uio.h>

extern char **environ;

struct state state;

// The linker marks where the slots begin and end.
extern const struct slot __start_slots[], __stop_slots[];

// missing stands for a function that this version of libc does not have. A program that asks dlsym for it gets ours.
static long missing(void) {
  errno = ENOSYS;
  return -1;
}

void *find_now(const struct slot *slot) {
  void *address = dlsym(RTLD_NEXT, slot->name);
  if (!address) address = (void *)missing;
  __atomic_store_n(slot->address, address, __ATOMIC_RELEASE);
  return address;
}

// add_top records the first component of path.
static void add_top(const char *path) {
  const char *end = strchr(path + 1, '/');
  size_t length = end ? (size_t)(end - path) : strlen(path);
  for (int i = 0; i < state.top_count; i++)
    if (state.tops[i].length == length && !memcmp(state.tops[i].path, path, length)) return;
  if (state.top_count == MAX_TOPS || length >= sizeof state.tops->path) __builtin_trap();
  state.letter1[(unsigned char)path[1]] |= (unsigned char)(1 << state.top_count);
  state.letter2[(unsigned char)path[2]] |= (unsigned char)(1 << state.top_count);
  struct top *top = &state.tops[state.top_count++];
  memcpy(top->path, path, length);
  top->length = length;
  struct stat st;
  if (kernel_stat(AT_FDCWD, top->path, &st, 0) == 0) {
    dev_t *d = state.watched;
    while (*d && *d != st.st_dev) d++;
    *d = st.st_dev;
  }
}

// export_root puts the absolute root into the environment, because children may start in another directory. It replaces the
// entry in the array itself, which main gets as its third argument.
static void export_root(void) {
  static char variable[64 + PATH_MAX];
  size_t name = strlen(library_variable);
  memcpy(variable, library_variable, name);
  variable[name] = '=';
  memcpy(variable + name + 1, state.root, state.root_length + 1);
  for (char **e = environ; e && *e; e++)
    if (!strncmp(*e, variable, name + 1)) *e = variable;
}

enum { LEFT = 512 };  // the root may take PATH_MAX less this, so that there is room for paths below it

// set_root copies the root as an absolute path, without symbolic links if it exists. It returns false if there is no room.
static bool set_root(const char *value) {
  size_t length = strlen(value), used = 0;
  if (value[0] != '/') {
    ssize_t n = kernel(SYS_getcwd, (long)state.root, sizeof state.root, 0, 0);
    if (n <= 0 || state.root[0] != '/') return false;
    used = (size_t)n - 1;
    state.root[used++] = '/';
  }
  if (used + length >= sizeof state.root - LEFT) return false;
  memcpy(state.root + used, value, length + 1);
  static char canonical[PATH_MAX];
  int fd = kernel_open(state.root, O_PATH | O_DIRECTORY);
  if (fd >= 0) {
    ssize_t n = kernel_fd_path(fd, canonical, sizeof canonical);
    if (n > 0 && canonical[0] == '/') memcpy(state.root, canonical, (size_t)n + 1);
    kernel_close(fd);
  }
  for (length = strlen(state.root); length && state.root[length - 1] == '/'; length--) state.root[length - 1] = '\0';
  state.root_length = length;
  if (value[0] != '/') export_root();
  return true;
}

// forget_root is for a root that is too long. It keeps the beginning, to be printed in the error message. That is no
// directory, so every path into the tree fails.
static void forget_root(const char *value) {
  size_t n = strnlen(value, 60);
  memcpy(state.root, value, n);
  memcpy(state.root + n, "...", 4);
  state.root_length = n + 3;
}

// settle reads the environment and returns the phase that follows.
static int settle(void) {
  const char *value = library_root();
  if (!value || !*value) return INERT;
  for (const struct prefix *p = library_prefixes; p->path; p++) add_top(p->path);
  add_top("/proc");  // /proc/self/root, /proc/self/fd
  state.letter1['/'] = state.letter1['.'] = state.letter1['\0'] = ALWAYS;
  if (!set_root(value)) forget_root(value);
  if (!state.root_length) return INERT;  // the staged tree is the host itself
  memcpy(state.witness, state.root, state.root_length);
  memcpy(state.witness + state.root_length, state.tops[0].path, state.tops[0].length + 1);
  static char cwd[PATH_MAX];
  bool staged;
  atomic_store(&state.cwd_far, virtual_of(AT_FDCWD, cwd, sizeof cwd, &staged) && !staged && !near_top(cwd));
  return ACTIVE;
}

// hold maps a file of a temporary tree for as long as this process lives; a descriptor might be closed. nvmlfab removes the
// tree when no process has the file mapped. Other trees have no such file.
static void hold(void) {
  static char path[PATH_MAX + 32];
  memcpy(path, state.root, state.root_length);
  strcpy(path + state.root_length, "/.nvmlfab-users");
  int fd = kernel_open(path, O_RDWR);
  if (fd < 0) return;
  mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
  kernel_close(fd);
}

// start is run by the first call or by the constructor, whichever comes first. It looks up all functions at once, because
// signal handlers may call ours and must not call dlsym. The files that dlsym opens meanwhile are opened by libc.
void start(void) {
  int unknown = UNKNOWN;
  if (!atomic_compare_exchange_strong(&state.phase, &unknown, STARTING)) return;
  state.errno_at = (char *)&errno - (char *)__builtin_thread_pointer();
  int phase = settle();
  if (phase == ACTIVE) hold();
  for (const struct slot *s = __start_slots; s < __stop_slots; s++) find(s);
  atomic_store(&state.phase, phase);
}

__attribute__((constructor)) static void load(void) { start(); }

void complain_once(void) {
  static _Atomic bool done;
  if (atomic_exchange(&done, true)) return;
  const char *parts[] = {"nvmlfab: ", library_variable, "=", state.root, ": no staged tree there; every path into it fails\n"};
  struct iovec line[sizeof parts / sizeof *parts];
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) line[i] = (struct iovec){(void *)parts[i], strlen(parts[i])};
  kernel(SYS_writev, 2, (long)line, sizeof parts / sizeof *parts, 0);
}
