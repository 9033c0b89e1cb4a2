// The header in C++, and the library as a program loads it that can do without: with dlopen(3).
#include <taskdiag.h>

#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

template <typename T> static T symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);
	if (found == nullptr) {
		std::fprintf(stderr, "%s: %s\n", name, dlerror());
		std::exit(1);
	}
	return reinterpret_cast<T>(found);
}

int main(int, char **argv)
{
	// Twice: nothing of the first time is in the way.
	for (int turn = 0; turn < 2; turn++) {
		void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
		if (library == nullptr) {
			std::fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		td_handle *handle = symbol<decltype(&td_handle_new)>(library, "td_handle_new")();
		td_table *table = nullptr;
		td_error *error = nullptr;
		td_code code = symbol<decltype(&td_processes)>(library, "td_processes")(handle, "pid,comm", "pid > 0", &table, &error);
		if (code != TD_OK || symbol<decltype(&td_table_len)>(library, "td_table_len")(table) == 0)
			return 2;
		symbol<decltype(&td_table_free)>(library, "td_table_free")(table);
		symbol<decltype(&td_handle_free)>(library, "td_handle_free")(handle);
		if (dlclose(library) != 0)
			return 3;
	}
	return 0;
}
