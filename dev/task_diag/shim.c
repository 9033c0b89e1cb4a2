/* Lets an unchanged program of task_diag talk to the broker: LD_PRELOAD=shim.so. Opening
 * /proc/task-diag connects to the socket in TASKDIAG_SOCKET. The rest works on a socket as on the
 * file: one write is a request, and each read gets a packet of its answer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int open(const char *path, int flags, ...)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const char *socket_path = getenv("TASKDIAG_SOCKET");
	va_list list;
	va_start(list, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
	va_end(list);
	if (strcmp(path, "/proc/task-diag"))
		return openat(AT_FDCWD, path, flags, mode);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path ? socket_path : "/run/taskdiag/taskdiag.sock");
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address))) {
		close(fd);
		return -1;
	}
	return fd;
}
