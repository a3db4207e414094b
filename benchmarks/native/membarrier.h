/* The system call that fences the cores of every registered process from outside. */
#ifndef IPCBUS_NATIVE_MEMBARRIER_H
#define IPCBUS_NATIVE_MEMBARRIER_H

#include "common.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>

/* To be called by each process whose cores are to be fenced. */
static inline void register_for_membarrier(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) != 0)
        die("membarrier: register");
}

static inline void fence_everybody(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0)
        die("membarrier");
}

#endif
