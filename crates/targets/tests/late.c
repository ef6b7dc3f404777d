// Preloaded into QEMU: its processor's thread is late, now and then, where it leaves the guest's code. A busy host does the same.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <stdlib.h>
#include <time.h>

typedef void jump(sigjmp_buf, int);

static _Noreturn void jump_late(const char *name, sigjmp_buf to, int value)
{
    static unsigned jumps;
    if (++jumps % 16 == 0)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    ((jump *)dlsym(RTLD_NEXT, name))(to, value);
    abort();
}

void siglongjmp(sigjmp_buf to, int value)
{
    jump_late("siglongjmp", to, value);
}

void __longjmp_chk(sigjmp_buf to, int value)
{
    jump_late("__longjmp_chk", to, value);
}
