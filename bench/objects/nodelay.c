/* Preloaded into s3s-fs: sets TCP_NODELAY on every accepted socket. Without it each small GET waits 44 ms for an
 * acknowledgement, and that would be measured instead of the server. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

typedef int (*accept_function)(int, struct sockaddr *, socklen_t *, int);

int accept4(int listener, struct sockaddr *address, socklen_t *length, int flags) {
    static accept_function next;
    if (!next) next = (accept_function)dlsym(RTLD_NEXT, "accept4");
    int accepted = next(listener, address, length, flags);
    int on = 1;
    if (accepted >= 0) setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return accepted;
}
