// Reads calls from standard input, makes them on the library named by the argument, and prints the results. It uses no
// prototypes, so it calls a function as a program built with any header would.
//
// An input line is a name and its arguments in hexadecimal: a number, or = and the bytes of a buffer to point to. &, a number and a
// buffer are no argument: the buffer before gets a pointer to this one, so many bytes after its start. An output line is the return code and the final content of the buffers, each with the guard bytes after it, which must
// not change.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGS = 6, GUARD = 16 };

int main(int argc, char **argv)
{
	void *lib = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!lib) {
		fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: call LIBRARY");
		return 1;
	}
	char *line = NULL;
	size_t room = 0;
	while (getline(&line, &room, stdin) > 0) {
		uintptr_t arg[ARGS] = { 0 };
		unsigned char *buffer[ARGS] = { NULL };
		size_t size[ARGS] = { 0 };
		char *name = strtok(line, " \n"), *word;
		int n = 0;
		for (int i = 0; i < ARGS && (word = strtok(NULL, " \n")); i++) {
			void *inside = NULL;
			if (*word == '&' && i > 0 && buffer[i - 1])
				inside = buffer[i - 1] + strtoull(word + 1, &word, 16);
			if (*word != '=') {
				arg[n++] = strtoull(word, NULL, 16);
				continue;
			}
			word++;
			size[i] = strlen(word) / 2 + GUARD;
			buffer[i] = malloc(size[i]);
			memset(buffer[i], 0xa5, size[i]);
			for (size_t j = 0; j < size[i] - GUARD; j++)
				sscanf(word + 2 * j, "%2hhx", &buffer[i][j]);
			if (inside)
				memcpy(inside, &buffer[i], sizeof buffer[i]);
			else
				arg[n++] = (uintptr_t)buffer[i];
		}
		int (*call)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);
		*(void **)&call = dlsym(lib, name);
		printf("%d", call ? call(arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]) : -1);
		for (int i = 0; i < ARGS; i++) {
			if (!buffer[i])
				continue;
			putchar(' ');
			for (size_t j = 0; j < size[i]; j++)
				printf("%02x", buffer[i][j]);
			free(buffer[i]);
		}
		putchar('\n');
		fflush(stdout);
	}
	free(line);
	return 0;
}
