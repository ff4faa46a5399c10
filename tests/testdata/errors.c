// Prints the library's text for each error code.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *lib = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!lib) {
		fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: errors LIBRARY");
		return 1;
	}
	const char *(*text)(int);
	*(void **)&text = dlsym(lib, "nvmlErrorString");
	for (int code = -1; code <= 29; code++)
		printf("%d %s\n", code, text(code));
	printf("999 %s\n1000 %s\n", text(999), text(1000));
	return 0;
}
