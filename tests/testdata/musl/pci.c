// Prints the addresses of NVIDIA's GPUs among the PCI functions, which it looks for by several functions of libc that have to agree: in the order of
// scandir, one a line. With an argument it also starts that program, which inherits LD_PRELOAD.

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(x)                                 \
  do {                                           \
    if (!(x)) {                                  \
      fprintf(stderr, "%d: %s\n", __LINE__, #x); \
      exit(1);                                   \
    }                                            \
  } while (0)

static const char devices[] = "/sys/bus/pci/devices";

static int files;  // called vendor

static int visit(const char *path, const struct stat *st, int type, struct FTW *at) {
  (void)st;
  files += type == FTW_F && at->level == 1 && !strcmp(path + at->base, "vendor");
  return 0;
}

int main(int argc, char **argv) {
  struct dirent **names, *entry;
  int count = scandir(devices, &names, NULL, alphasort), listed = 0;
  CHECK(count > 0);
  DIR *dir = opendir(devices);
  CHECK(dir);
  while ((entry = readdir(dir))) listed++;
  closedir(dir);
  CHECK(listed == count);
  CHECK(!chdir(devices));
  for (int i = 0; i < count; i++) {
    if (names[i]->d_name[0] == '.') continue;
    char path[PATH_MAX], real[PATH_MAX], link[PATH_MAX], text[16] = "";
    snprintf(path, sizeof path, "%s/%s", devices, names[i]->d_name);
    struct stat st;
    CHECK(!lstat(path, &st) && S_ISLNK(st.st_mode));
    CHECK(realpath(path, real) && !strncmp(real, "/sys/devices/pci", 16));
    CHECK(readlink(names[i]->d_name, link, sizeof link) > 0);
    CHECK(!nftw(real, visit, 8, FTW_PHYS));
    strcat(path, "/vendor");
    CHECK(!access(path, R_OK) && !stat(path, &st) && st.st_mode == (S_IFREG | 0444));
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text) > 0);
    close(fd);
    char class[16];
    strcpy(path + strlen(path) - 6, "class");
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(class, sizeof class, file));
    fclose(file);
    if (!strcmp(text, "0x10de\n") && !strncmp(class, "0x0302", 6)) puts(names[i]->d_name);
  }
  CHECK(files == count - 2);
  fflush(stdout);
  if (argc > 1) execv(argv[1], argv + 1);
  return argc > 1;
}
